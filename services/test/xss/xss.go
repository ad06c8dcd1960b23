// Package xss holds texts that try to make a page do something: a corpus for everything
// that shows what models, tools and people write. It is for tests; nothing runs here.
package xss

import (
	_ "embed"
	"encoding/json"
	"strings"
)

// One JSON string in a line, since some hold line breaks and control characters.
//
//go:embed vectors.jsonl
var vectors string

// Vectors are the texts. What would run calls alert, or fetches from evil.example.
func Vectors() []string {
	var out []string
	for line := range strings.Lines(vectors) {
		var v string
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			panic("vectors.jsonl: " + err.Error()) // it is part of the program
		}
		out = append(out, v)
	}
	return out
}
