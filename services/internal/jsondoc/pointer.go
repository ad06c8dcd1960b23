package jsondoc

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// ErrTrailing means that data follows the document.
var ErrTrailing = errors.New("data after the document")

// Decode reads one JSON document. Numbers keep their digits, as [json.Number].
func Decode(body []byte) (v any, err error) {
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, ErrTrailing
	}
	return v, nil
}

// CheckPointer returns an error if p, the value of a configuration's field, is neither empty
// nor a JSON pointer.
func CheckPointer(field, p string) error {
	if p != "" && !strings.HasPrefix(p, "/") {
		return fmt.Errorf("%s: %q is not a JSON pointer; want for example /message/text", field, p)
	}
	return nil
}

// Lookup follows a JSON pointer; the empty one leads to the document itself.
func Lookup(v any, pointer string) (any, bool) {
	if pointer == "" {
		return v, true
	}
	for token := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		token = strings.NewReplacer("~1", "/", "~0", "~").Replace(token)
		switch in := v.(type) {
		case map[string]any:
			var ok bool
			if v, ok = in[token]; !ok {
				return nil, false
			}
		case []any:
			i, err := strconv.Atoi(token)
			if err != nil || i < 0 || i >= len(in) || strconv.Itoa(i) != token {
				return nil, false
			}
			v = in[i]
		default:
			return nil, false
		}
	}
	return v, true
}
