package source

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestOnlyLinksThatCanBeShownAreSources(t *testing.T) {
	for address, want := range map[string]bool{
		"https://a.example/x?q=1": true, "http://a.example\n": true, "https://例え.jp/": true,
		"javascript:alert(1)": false, "data:text/html,x": false, "/relative": false, "//a.example/": false,
		"https://user:pw@a.example/": false, "https://": false, "": false, "https://a.example/" + strings.Repeat("x", 2048): false,
	} {
		if _, ok := New("t", address); ok != want {
			t.Errorf("%q: %v, want %v", address, ok, want)
		}
	}
	if s, _ := New(" \n", "https://a.example/x"); s.Title != "a.example" {
		t.Errorf("without a title it is %q", s.Title)
	}
}

func TestLine(t *testing.T) {
	if got := Line("a\n\t b\xff", 100); got != "a b\uFFFD" {
		t.Errorf("got %q", got)
	}
	if got := Line(strings.Repeat("語", 100), 10); !utf8.ValidString(got) || len(got) > 13 {
		t.Errorf("got %q", got)
	}
}

func TestDate(t *testing.T) {
	for in, want := range map[string]string{
		"2025-04-12T14:22:41": "2025-04-12", "2023-11-16T01:36:32.547Z": "2023-11-16", "2025-01-02 03:04:05": "2025-01-02",
		"2025-01-02": "2025-01-02", "Tue, 11 Mar 2025 08:00:00 GMT": "2025-03-11", "April 12, 2025": "2025-04-12",
		"yesterday": "", "": "", "2025-13-02T00:00:00": "",
	} {
		if got := Date(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}
