package page

import (
	"encoding/json"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"skandha.dev/services/internal/result"
	"skandha.dev/services/toolrunner/tools/web/source"
)

// Whatever a page contains, its text is valid, and holds no script.
func FuzzHTML(f *testing.F) {
	pages, err := filepath.Glob("testdata/*.html")
	if err != nil || len(pages) == 0 {
		f.Fatal("no pages", err)
	}
	for _, p := range pages {
		b, err := os.ReadFile(p)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, "text/html", true)
	}
	f.Add([]byte("<table><td colspan=9><base href=:><a href=//><img alt>"), "text/html; charset=gbk", false)
	at := &url.URL{Scheme: "https", Host: "a.example", Path: "/"}
	f.Fuzz(func(t *testing.T, b []byte, contentType string, whole bool) {
		page, err := decode(b, contentType)
		if err != nil {
			t.Skip()
		}
		cut, _ := bounded(page)
		if !strings.HasPrefix(page, cut) {
			t.Fatal("the beginning of the page is not its beginning")
		}
		var d document
		d.html(page, at, whole)
		if !utf8.ValidString(d.text) || !utf8.ValidString(plain(page)) {
			t.Fatal("the text is not UTF-8")
		}
		if strings.Contains(d.text, "](javascript:") {
			t.Fatalf("a script is linked: %q", d.text)
		}
	})
}

// Whatever the encoding, what is decoded is valid text.
func FuzzDecode(f *testing.F) {
	f.Add([]byte("\x93\x8c\x8b\x9e"), "text/html; charset=shift_jis")
	f.Add([]byte("\xff\xfea\x00"), "")
	f.Add([]byte("<meta charset=big5>\xa4\xa4"), "text/html")
	f.Fuzz(func(t *testing.T, b []byte, contentType string) {
		s, err := decode(b, contentType)
		if err == nil && (!utf8.ValidString(s) || strings.Contains(s, "\x00")) {
			t.Fatalf("got %q", s)
		}
		if kindOf(actual(contentType, b)) == kindText && err != nil && s != "" {
			t.Fatal("text beside an error")
		}
	})
}

// The parts of a text fit results, and join to the text.
func FuzzParts(f *testing.F) {
	f.Add("a\n語<&>\u2028\"", 3000)
	f.Add("\x00\x1f\u007f\U0001F600", 2000)
	f.Fuzz(func(t *testing.T, s string, times int) {
		if s = strings.ToValidUTF8(s, "?"); times < 0 || times > 5000 || len(s)*times > 200_000 {
			t.Skip()
		}
		d := document{source: source.Source{URL: "https://a.example/"}, text: strings.Repeat(s, times)}
		var got strings.Builder
		for offset := 0; ; {
			a, err := d.from(offset)
			if err != nil {
				t.Fatal(err)
			}
			if b, err := json.Marshal(a); err != nil || len(b) > result.MaxData {
				t.Fatalf("%d bytes, %v", len(b), err)
			}
			got.WriteString(a.Content)
			if a.NextOffset == 0 {
				break
			}
			if offset = a.NextOffset; a.Content == "" {
				t.Fatal("an empty part")
			}
		}
		if got.String() != d.text {
			t.Fatal("the parts do not join to the text")
		}
	})
}
