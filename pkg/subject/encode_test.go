package subject_test

import (
	"errors"
	"strings"
	"testing"

	"skandha.dev/pkg/subject"
)

// Every pair here is the contract as other languages read it in schemas/asyncapi.yaml.
var encodings = []struct{ name, token string }{
	{"", "-"},
	{"read_file", "read_file"},
	{"python:execute", "python--execute"},
	{"memory-retrieve", "memory-_retrieve"},
	{"a b", "a-20b"},
	{":", "--"},
	{"-", "-_"},
	{"--", "-_-_"},
	{"-_", "-__"},
	{"a.b", "a-2Eb"},
	{"*", "-2A"},
	{">", "-3E"},
	{"\x00\r\n\t", "-00-0D-0A-09"},
	{"é", "-C3-A9"},
	{"天気", "-E5-A4-A9-E6-B0-97"},
	{"\xff", "-FF"}, // bytes need not be UTF-8
}

func TestEncodeAndDecodeAreTheContract(t *testing.T) {
	for _, c := range encodings {
		if got := subject.Encode(c.name); got != c.token {
			t.Errorf("Encode(%q) = %q, want %q", c.name, got, c.token)
		}
		if got, err := subject.Decode(c.token); err != nil || got != c.name {
			t.Errorf("Decode(%q) = %q, %v, want %q", c.token, got, err, c.name)
		}
	}
}

func TestDecodeRefusesWhatEncodeCannotHaveProduced(t *testing.T) {
	for _, token := range []string{
		"", " ", "a b", "a.b", "*", ">", "a\n", "a\x00", "é", // no id characters
		"a-", "a-2", "a-2e", "a-zz", "-2", // an escape that is cut, or in lower case
		"-41", "-3A", "-2D", "-5F", // what has a shorter form
	} {
		if name, err := subject.Decode(token); !errors.Is(err, subject.ErrInvalidID) {
			t.Errorf("Decode(%q) = %q, %v, want ErrInvalidID", token, name, err)
		}
	}
}

func TestErrorsQuoteAtMostTheBeginningOfWhatTheyRefuse(t *testing.T) {
	_, err := subject.Decode(strings.Repeat("x", 1<<20) + ".")
	if err == nil || len(err.Error()) > 300 {
		t.Errorf("the error has %d bytes: %.200v", len(err.Error()), err)
	}
}

func FuzzEncodeDecode(f *testing.F) {
	for _, c := range encodings {
		f.Add(c.name)
		f.Add(c.token)
	}
	f.Fuzz(func(t *testing.T, s string) {
		token := subject.Encode(s)
		if token == "" || strings.Trim(token, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-") != "" {
			t.Fatalf("Encode(%q) = %q is no token of a subject", s, token)
		}
		back, err := subject.Decode(token)
		if err != nil || back != s {
			t.Fatalf("Decode(Encode(%q)) = %q, %v", s, back, err)
		}
		// And the other way: each token encodes one name, and each name has one token.
		if name, err := subject.Decode(s); err == nil && subject.Encode(name) != s {
			t.Fatalf("Decode(%q) = %q, which encodes to %q", s, name, subject.Encode(name))
		}
	})
}
