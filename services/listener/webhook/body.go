package webhook

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"unicode/utf8"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/jsondoc"
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
	v, err := jsondoc.Decode(body)
	switch {
	case errors.Is(err, jsondoc.ErrTrailing):
		return nil, wrong(http.StatusBadRequest, "body", "data after the JSON object; send a single object")
	case err != nil:
		return nil, wrong(http.StatusBadRequest, "body", "not a JSON object: %v", err)
	}
	return v, nil
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
	text, err := l.template.Text(v, event.MaxTextBytes)
	if err != nil {
		return "", wrong(http.StatusUnprocessableEntity, "body", "the body does not fit the listener's text_template: %v",
			err)
	}
	return text, nil
}

// session returns the session that receives the input.
func (l *Listener) session(v any) (subject.Session, *fault) {
	if l.cfg.SessionField == "" {
		return subject.Session(l.cfg.Session), nil
	}
	name, ok := jsondoc.Lookup(v, l.cfg.SessionField)
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
	found, ok := jsondoc.Lookup(v, pointer)
	s, isString := found.(string)
	return s, ok && isString && s != ""
}
