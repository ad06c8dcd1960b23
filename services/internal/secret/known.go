package secret

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"strings"
)

// MinKnown is how many bytes a value must have to be hidden by a [Known]: shorter ones are words of any text.
const MinKnown = 6

// Known hides secrets whose values are known, wherever they are repeated as they are. The zero value hides nothing.
type Known struct {
	plain  []string // pairs of a value and what is shown for it
	inJSON []string // the values as they are in documents
}

// NewKnown returns what hides the values, but those that are shorter than [MinKnown].
func NewKnown(values ...string) (k Known) {
	values = slices.DeleteFunc(slices.Clone(values), func(v string) bool { return len(v) < MinKnown })
	slices.SortFunc(values, func(a, b string) int { return cmp.Compare(len(b), len(a)) }) // one may contain another
	for _, v := range values {
		k.plain = append(k.plain, v, Hidden)
		if b, err := json.Marshal(v); err == nil {
			k.inJSON = append(k.inJSON, string(b[1:len(b)-1]))
		}
	}
	return k
}

// Hide returns a text without the secrets.
func (k Known) Hide(s string) string {
	if len(k.plain) == 0 {
		return s
	}
	return strings.NewReplacer(k.plain...).Replace(s)
}

// HideJSON returns a document of [json.Marshal] without the secrets, in one line.
func (k Known) HideJSON(doc []byte) []byte {
	if !slices.ContainsFunc(k.inJSON, func(v string) bool { return bytes.Contains(doc, []byte(v)) }) {
		return doc
	}
	v, err := decode(doc)
	if err != nil {
		return []byte(`"` + Hidden + `"`)
	}
	return []byte(encode(k.hide(v)))
}

func (k Known) hide(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for name, e := range v {
			out[k.Hide(name)] = k.hide(e)
		}
		return out
	case []any:
		for i := range v {
			v[i] = k.hide(v[i])
		}
	case string:
		return k.Hide(v)
	case json.Number:
		if s := k.Hide(v.String()); s != v.String() {
			return s
		}
	}
	return v
}
