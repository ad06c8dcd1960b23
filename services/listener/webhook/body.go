package webhook

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"unicode/utf8"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
)

// decode reads the body, which is one JSON object. (The signature covers
// "id.timestamp.body": as a body begins with {, there is one way to split it.)
func decode(body []byte) (any, *fault) {
	if !utf8.Valid(body) {
		return nil, wrong(http.StatusBadRequest, "body", "not valid UTF-8; send UTF-8")
	}
	if trimmed := bytes.TrimLeft(body, " \t\r\n"); len(trimmed) == 0 || trimmed[0] != '{' {
		return nil, wrong(http.StatusBadRequest, "body", "not a JSON object; send for example {\"text\": \"hello\"}")
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, wrong(http.StatusBadRequest, "body", "not a JSON object: %v", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, wrong(http.StatusBadRequest, "body", "data after the JSON object; send a single object")
	}
	return v, nil
}

// lookup follows a JSON pointer (RFC 6901).
func lookup(v any, pointer string) (any, bool) {
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

// text returns the input's text.
func (l *Listener) text(v any) (string, *fault) {
	if l.template == nil {
		s, ok := stringAt(v, l.cfg.TextField)
		if !ok {
			return "", wrong(http.StatusUnprocessableEntity, l.cfg.TextField,
				"want a non-empty string; this listener reads the text from this field (text_field)")
		}
		return s, nil
	}
	var out bounded
	if err := l.template.Execute(&out, v); err != nil {
		return "", wrong(http.StatusUnprocessableEntity, "body", "the body does not fit the listener's text_template: %v",
			err)
	}
	return out.String(), nil
}

// session returns the session that receives the input.
func (l *Listener) session(v any) (subject.Session, *fault) {
	if l.cfg.SessionField == "" {
		return subject.Session(l.cfg.Session), nil
	}
	name, ok := lookup(v, l.cfg.SessionField)
	if n, isNumber := name.(json.Number); isNumber {
		name = n.String()
	}
	s, isString := name.(string)
	if !ok || !isString || s == "" {
		return "", wrong(http.StatusUnprocessableEntity, l.cfg.SessionField,
			"want a non-empty string; this listener reads the session from this field (session_field)")
	}
	session, err := subject.Parse[subject.Session](l.cfg.SessionPrefix + subject.Encode(s))
	if err != nil {
		return "", wrong(http.StatusUnprocessableEntity, l.cfg.SessionField,
			"the session's name is too long: at most %d characters with its prefix, where each that is not a letter, "+
				"digit or _ counts up to three", subject.MaxIDLen)
	}
	return session, nil
}

func stringAt(v any, pointer string) (string, bool) {
	found, ok := lookup(v, pointer)
	s, isString := found.(string)
	return s, ok && isString && s != ""
}

// compact is the function json of templates.
func compact(v any) (string, error) {
	b, err := json.Marshal(v)
	return string(b), err
}

// bounded is a buffer that accepts no more bytes than a text may have.
type bounded struct{ bytes.Buffer }

func (b *bounded) Write(p []byte) (int, error) {
	if b.Len()+len(p) > event.MaxTextBytes {
		return 0, errors.New("the text is too long")
	}
	return b.Buffer.Write(p)
}
