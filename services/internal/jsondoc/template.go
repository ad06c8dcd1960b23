package jsondoc

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"text/template"
)

// Template makes a text of a document. Its function json writes a value as JSON.
type Template struct{ t *template.Template }

// ParseTemplate reads the template of a configuration's field; an empty text is nil.
func ParseTemplate(field, text string) (*Template, error) {
	if text == "" {
		return nil, nil //nolint:nilnil // there is none, which is not an error
	}
	t, err := template.New(field).Option("missingkey=error").Funcs(template.FuncMap{"json": compact}).Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", field, err)
	}
	return &Template{t}, nil
}

// Text applies the template to a document. A result of more than limit bytes is an error.
func (t *Template) Text(v any, limit int) (string, error) {
	out := bounded{left: limit}
	if err := t.t.Execute(&out, v); err != nil {
		return "", err
	}
	return out.String(), nil
}

func compact(v any) (string, error) {
	b, err := json.Marshal(v)
	return string(b), err
}

// bounded is a buffer that accepts no more than a number of bytes.
type bounded struct {
	bytes.Buffer
	left int
}

func (b *bounded) Write(p []byte) (int, error) {
	if b.left -= len(p); b.left < 0 {
		return 0, errors.New("the text is too long")
	}
	return b.Buffer.Write(p)
}
