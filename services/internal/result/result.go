// Package result limits the size of a tool's result, so that it can be committed. Data
// above [MaxData] is cut in the middle and stored whole as an artifact, which the result's
// metadata names. Every tool runner passes its results through this package. It also says
// which files a result may show a model; see [Shown].
package result

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"time"
	"unicode/utf8"

	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/text"
)

// The limits of a result, in bytes.
const (
	// MaxData is the maximum size of the data in a result itself, encoded.
	MaxData = 16 << 10
	// MaxArtifact is the maximum size of data that is stored at all.
	MaxArtifact = 64 << 20
	// MaxMessage is the maximum length of an error's message, and of each of its details.
	MaxMessage = 4 << 10

	// maxShaped is the maximum size of data that is cut inside its strings. Larger data is
	// cut as text, because decoding takes several times its size.
	maxShaped  = 4 << 20
	maxDetails = 100
	storeWait  = 10 * time.Second
)

// Store stores data that is too large for a result; a *bus.Bus is one.
type Store interface {
	PutArtifact(ctx context.Context, name string, data []byte) error
}

// Artifact describes, under "artifact" in a result's metadata, the whole of data that was
// cut.
type Artifact struct {
	Ref  string `json:"ref"`  // its name in the object store "artifacts"
	Size int    `json:"size"` // of the whole data as JSON, in bytes
}

// Name returns the artifact's name for the data of one attempt of a call.
func Name(ref subject.Ref, call, attempt string) string {
	return strings.Join([]string{string(ref.Agent), string(ref.Session), call, attempt}, "/")
}

// Limit returns the result within the limits. It cuts large data in the middle and stores
// the whole data under the name.
func Limit(ctx context.Context, store Store, name string, r tool.Result) tool.Result {
	r.Error = limitError(r.Error)
	if len(r.Data) <= MaxData {
		return r
	}
	if len(r.Data) > MaxArtifact {
		return tool.Failure(tool.CodeTooLarge, fmt.Sprintf(
			"the tool ran, but its result has %d bytes; the limit is %d; ask for less at a time", len(r.Data), MaxArtifact))
	}
	if !json.Valid(r.Data) {
		return tool.Failure(tool.CodeInternal, "the tool's data is not valid JSON")
	}
	meta := map[string]any{"truncated": true}
	maps.Copy(meta, r.Metadata)
	a := Artifact{Ref: name, Size: len(r.Data)}
	// The call's own deadline may be near, but its effect has already happened.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeWait)
	defer cancel()
	if err := store.PutArtifact(ctx, a.Ref, r.Data); err != nil {
		// The call succeeded, which matters more than the data that was cut.
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
	out.Message = text.Cut(out.Message, MaxMessage)
	if n := len(out.Details) - maxDetails; n > 0 {
		out.Details = append(out.Details[:maxDetails:maxDetails], fmt.Sprintf("and %d more", n))
	}
	for i, d := range out.Details {
		if len(d) > MaxMessage {
			out.Details = append([]string(nil), out.Details...)
			out.Details[i] = text.Cut(d, MaxMessage)
		}
	}
	return &out
}

// shorten returns JSON of at most MaxData bytes. It cuts long strings in the middle; if
// that is not enough, it cuts the JSON text and returns it as a string.
func shorten(data json.RawMessage) json.RawMessage {
	var value any
	if len(data) <= maxShaped || data[0] == '"' {
		d := json.NewDecoder(bytes.NewReader(data))
		d.UseNumber()
		if d.Decode(&value) != nil {
			value = nil // valid JSON that is nested too deeply: cut the text
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
		panic(err) // cannot happen: v comes from a JSON decoder
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
