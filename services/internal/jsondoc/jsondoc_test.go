package jsondoc_test

import (
	"errors"
	"strings"
	"testing"

	"skandha.dev/services/internal/jsondoc"
)

func TestAPointerLeadsToAValue(t *testing.T) {
	doc, err := jsondoc.Decode([]byte(`{"a":{"b/c":[1,{"~":"deep"}]},"":"empty","n":12345678901234567890}`))
	if err != nil {
		t.Fatal(err)
	}
	for pointer, want := range map[string]any{
		"/a/b~1c/1/~0": "deep", "/": "empty", "/a/b~1c/01": nil, "/a/b~1c/-1": nil, "/a/b~1c/2": nil, "/none": nil,
		"/a/b~1c/1/~0/x": nil,
	} {
		if got, ok := jsondoc.Lookup(doc, pointer); ok != (want != nil) || ok && got != want {
			t.Errorf("%s: %v, %v; want %v", pointer, got, ok, want)
		}
	}
	if n, _ := jsondoc.Lookup(doc, "/n"); n == nil || n.(interface{ String() string }).String() != "12345678901234567890" {
		t.Errorf("a large number is %v, want its digits", n)
	}
	if all, ok := jsondoc.Lookup(doc, ""); !ok || all == nil {
		t.Error("the empty pointer does not lead to the document")
	}
}

func TestWhatIsNotOneDocumentIsAnError(t *testing.T) {
	for _, body := range []string{"", "{", `{"a":1}{}`, "1 2", "nope"} {
		if v, err := jsondoc.Decode([]byte(body)); err == nil {
			t.Errorf("%q is %v", body, v)
		}
	}
	if _, err := jsondoc.Decode([]byte("1 2")); !errors.Is(err, jsondoc.ErrTrailing) {
		t.Errorf("got %v, want ErrTrailing", err)
	}
}

func TestPointersAreChecked(t *testing.T) {
	if err := jsondoc.CheckPointer("text_field", "text"); err == nil || !strings.HasPrefix(err.Error(), "text_field: ") {
		t.Errorf("got %v, want an error with the field", err)
	}
	if err := errors.Join(jsondoc.CheckPointer("f", ""), jsondoc.CheckPointer("f", "/a")); err != nil {
		t.Error(err)
	}
}

func TestATemplateMakesAText(t *testing.T) {
	tmpl, err := jsondoc.ParseTemplate("text_template", `{{.a}}: {{json .b}}`)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsondoc.Decode([]byte(`{"a":"x","b":[1.50,null]}`))
	if err != nil {
		t.Fatal(err)
	}
	if text, err := tmpl.Text(doc, 100); err != nil || text != "x: [1.50,null]" {
		t.Errorf("%q, %v", text, err)
	}
	if text, err := tmpl.Text(doc, 4); err == nil {
		t.Errorf("%q, want an error: it is too long", text)
	}
	if text, err := tmpl.Text(map[string]any{"a": 1}, 100); err == nil {
		t.Errorf("%q, want an error: b is missing", text)
	}
	if _, err := jsondoc.ParseTemplate("text_template", "{{"); err == nil || !strings.HasPrefix(err.Error(), "text_template: ") {
		t.Errorf("got %v, want an error with the field", err)
	}
	if tmpl, err := jsondoc.ParseTemplate("f", ""); tmpl != nil || err != nil {
		t.Errorf("an empty template is %v, %v", tmpl, err)
	}
}
