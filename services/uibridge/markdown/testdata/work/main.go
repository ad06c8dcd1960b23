// Command work renders texts in a build that counts how often each block of statements
// runs, and leaves the sum for <directory>/<n>/text beside it, with its page.
package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/coverage"
	"strconv"

	"skandha.dev/services/uibridge/markdown"
)

func main() {
	texts, err := filepath.Glob(filepath.Join(os.Args[1], "*", "text"))
	if err != nil {
		panic(err)
	}
	r := markdown.New()
	for _, path := range texts {
		if err := count(r, path); err != nil {
			panic(err)
		}
	}
}

func count(r *markdown.Renderer, path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := coverage.ClearCounters(); err != nil {
		return err
	}
	page := r.Render(string(text))
	var counters bytes.Buffer
	if err := coverage.WriteCounters(&counters); err != nil {
		return err
	}
	n, err := sum(counters.Bytes())
	if err != nil {
		return err
	}
	dir := filepath.Dir(path)
	if err := os.WriteFile(filepath.Join(dir, "count"), []byte(strconv.FormatUint(n, 10)), 0o600); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "page"), []byte(page), 0o600)
}

// sum adds up a file of counters, as internal/coverage of Go describes it in version 1:
// a header, then functions, each with the number of its counters, its package, its
// place there, and the counters. "go tool covdata" for each text takes ten times as long.
func sum(b []byte) (n uint64, err error) {
	const header, footer, segment = 32, 16, 16
	if len(b) < header+segment+footer || !bytes.Equal(b[:4], []byte("\x00cwm")) {
		return 0, errors.New("this is no file of counters")
	}
	if version := binary.LittleEndian.Uint32(b[4:]); version != 1 {
		return 0, fmt.Errorf("counters of version %d, want 1: read internal/coverage of this Go, and change sum", version)
	}
	raw := b[24] == 1
	functions := binary.LittleEndian.Uint64(b[header:])
	names := int(binary.LittleEndian.Uint32(b[header+8:])) + int(binary.LittleEndian.Uint32(b[header+12:]))
	b = b[header+segment+(names+3)/4*4 : len(b)-footer]
	next := func() (v uint64) {
		size := 4
		if raw {
			v = uint64(binary.LittleEndian.Uint32(b))
		} else {
			v, size = binary.Uvarint(b)
		}
		b = b[size:]
		return v
	}
	for range functions {
		counters := next()
		_, _ = next(), next() // the package and the function
		for range counters {
			n += next()
		}
	}
	if len(b) > 0 {
		return 0, fmt.Errorf("%d bytes are left after %d functions", len(b), functions)
	}
	return n, nil
}
