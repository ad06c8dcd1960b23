package httpapi

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	contract "skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
)

// maxFunctionName is the longest name of a function that the APIs accept.
const maxFunctionName = 64

// WireName returns a tool's name as the API accepts it. A name that a model invented
// may still be too long; it is cut, otherwise every later request would be refused.
func WireName(tool string) string {
	name := subject.Encode(tool)
	if len(name) > maxFunctionName {
		name = name[:maxFunctionName]
	}
	if name == "" {
		name = "_"
	}
	return name
}

// ToolName decodes a name that the model wrote. A name that is not encoded stays as
// it is: either it is the real name, or core reports that there is no such tool.
func ToolName(wire string) string {
	if name, err := subject.Decode(wire); err == nil && utf8.ValidString(name) {
		return name
	}
	return wire
}

// CallID returns the API's id of a call, or another one if it has none, or one of the calls
// before.
func CallID(id string, before []contract.ToolCall) string {
	used := id == ""
	for _, c := range before {
		used = used || c.ID == id
	}
	if used {
		return "call_" + strconv.Itoa(len(before))
	}
	return id
}

// ReadArgs keeps arguments as they were written; anything that is not JSON becomes a string.
func ReadArgs(written string) json.RawMessage {
	trimmed := strings.TrimSpace(written)
	if trimmed == "" {
		return json.RawMessage("{}")
	}
	if json.Valid([]byte(trimmed)) {
		return json.RawMessage(trimmed)
	}
	b, err := json.Marshal(written)
	if err != nil {
		return json.RawMessage("{}")
	}
	return b
}

// WireArgs returns arguments for the history, as a JSON object: OpenAI accepts any text
// there, but other servers refuse the whole conversation for anything else.
func WireArgs(args json.RawMessage) json.RawMessage {
	trimmed := bytes.TrimSpace(args)
	if len(trimmed) == 0 {
		return json.RawMessage("{}")
	}
	if trimmed[0] == '{' && json.Valid(trimmed) {
		return trimmed
	}
	var written string
	if trimmed[0] != '"' || json.Unmarshal(trimmed, &written) != nil {
		written = string(trimmed)
	}
	b, err := json.Marshal(map[string]string{"invalid_arguments": written})
	if err != nil {
		return json.RawMessage("{}")
	}
	return b
}

// SameArgs reports whether arguments are those that the model wrote. Properties may have
// been added, because core fills in defaults.
func SameArgs(now, written json.RawMessage) bool {
	a, okA := decode(now)
	b, okB := decode(written)
	if !okA || !okB {
		return bytes.Equal(now, written)
	}
	return contains(a, b)
}

func decode(raw json.RawMessage) (v any, ok bool) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	err := d.Decode(&v)
	return v, err == nil
}

// contains reports whether value is part, but for properties that part lacks.
func contains(value, part any) bool {
	switch part := part.(type) {
	case map[string]any:
		object, ok := value.(map[string]any)
		for k, p := range part {
			v, has := object[k]
			ok = ok && has && contains(v, p)
		}
		return ok
	case []any:
		list, ok := value.([]any)
		return ok && slices.EqualFunc(list, part, contains)
	case json.Number:
		n, ok := value.(json.Number)
		return ok && sameNumber(n, part)
	}
	return value == part
}

func sameNumber(a, b json.Number) bool {
	if a == b {
		return true
	}
	x, errX := a.Float64()
	y, errY := b.Float64()
	return errX == nil && errY == nil && x == y
}
