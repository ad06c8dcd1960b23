// Package result makes a tool's result fit to be committed: data above [MaxData] is
// cut in the middle, and kept whole as an artifact that the result's metadata name.
// Every runner of tools has its results pass through it.
package result

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
)

// The limits of a result, in bytes.
const (
	// MaxData is the largest data that a result carries itself, encoded.
	MaxData = 16 << 10
	// MaxArtifact is the largest data that is kept at all.
	MaxArtifact = 64 << 20
	// MaxMessage is the longest message of an error, and its longest detail.
	MaxMessage = 4 << 10

	// maxShaped is the largest data that is cut inside its strings; of larger one
	// the text is cut, since decoding it takes several times its size.
	maxShaped  = 4 << 20
	maxDetails = 100
	storeWait  = 10 * time.Second
)

// Store keeps what is too large for a result; a *bus.Bus is one.
type Store interface {
	PutArtifact(ctx context.Context, name string, data []byte) error
}

// Artifact is what the metadata of a result says, under "artifact", about data
// that was cut.
type Artifact struct {
	Ref  string `json:"ref"`  // its name in the object store "artifacts"
	Size int    `json:"size"` // in bytes; the whole data as JSON
}

// Name is the artifact's for the data of one attempt of a call.
func Name(ref subject.Ref, call, attempt string) string {
	return strings.Join([]string{string(ref.Agent), string(ref.Session), call, attempt}, "/")
}

// Limit makes a result fit: large data is cut in the middle, and kept whole in the
// store under the name.
func Limit(ctx context.Context, store Store, name string, r tool.Result) tool.Result {
	r.Error = limitError(r.Error)
	if len(r.Data) <= MaxData {
		return r
	}
	if len(r.Data) > MaxArtifact {
		return tool.Failure(tool.CodeTooLarge, fmt.Sprintf(
			"the result has %d bytes, at most %d are kept; ask for less at a time. The tool did run", len(r.Data), MaxArtifact))
	}
	if !json.Valid(r.Data) {
		return tool.Failure(tool.CodeInternal, "the tool's data is not valid JSON")
	}
	meta := map[string]any{"truncated": true}
	for k, v := range r.Metadata {
		meta[k] = v
	}
	a := Artifact{Ref: name, Size: len(r.Data)}
	// The call's own deadline may be near, and the effect has happened.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeWait)
	defer cancel()
	if err := store.PutArtifact(ctx, a.Ref, r.Data); err != nil {
		// The call did what it was asked for: that is worth more than what was cut.
		meta["artifact_error"] = "the whole result could not be stored: " + err.Error()
	} else {
		meta["artifact"] = a
	}
	r.Data, r.Metadata = shorten(r.Data), meta
	return r
}

func limitError(e *tool.Error) *tool.Error {
	if e == nil {
		return nil
	}
	out := *e
	out.Message = Clip(out.Message, MaxMessage)
	if n := len(out.Details) - maxDetails; n > 0 {
		out.Details = append(out.Details[:maxDetails:maxDetails], fmt.Sprintf("and %d more", n))
	}
	for i, d := range out.Details {
		if len(d) > MaxMessage {
			out.Details = append([]string(nil), out.Details...)
			out.Details[i] = Clip(d, MaxMessage)
		}
	}
	return &out
}

// shorten gives JSON of at most MaxData bytes: long strings are cut inside, and
// if that does not do, the JSON text is cut and becomes a string.
func shorten(data json.RawMessage) json.RawMessage {
	var value any
	if len(data) <= maxShaped || data[0] == '"' {
		d := json.NewDecoder(bytes.NewReader(data))
		d.UseNumber()
		if d.Decode(&value) != nil {
			value = nil // valid JSON that nests too deep: take the text
		}
	}
	for keep := MaxData; keep >= 256 && value != nil; keep /= 2 {
		if out := encode(cutStrings(value, keep)); len(out) <= MaxData {
			return out
		}
	}
	for keep := MaxData; ; keep /= 2 {
		if out := encode(cut(string(data), keep)); len(out) <= MaxData {
			return out
		}
	}
}

func cutStrings(v any, keep int) any {
	switch x := v.(type) {
	case string:
		return cut(x, keep)
	case map[string]any:
		m := make(map[string]any, len(x))
		for k, e := range x {
			m[k] = cutStrings(e, keep)
		}
		return m
	case []any:
		l := make([]any, len(x))
		for i, e := range x {
			l[i] = cutStrings(e, keep)
		}
		return l
	default:
		return v
	}
}

// cut keeps about keep bytes of a text, half of them from its end.
func cut(s string, keep int) string {
	if len(s) <= keep {
		return s
	}
	head, tail := keep/2, len(s)-keep/2
	for head > 0 && !utf8.RuneStart(s[head]) {
		head--
	}
	for tail < len(s) && !utf8.RuneStart(s[tail]) {
		tail++
	}
	return fmt.Sprintf("%s\n[… %d bytes left out …]\n%s", s[:head], tail-head, s[tail:])
}

func encode(v any) json.RawMessage {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(err) // it came out of a JSON decoder
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// Clip keeps at most n bytes of a text, whole characters, and says by … that there was more.
func Clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}
