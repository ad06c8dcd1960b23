package subject_test

import (
	"errors"
	"strings"
	"testing"

	"skandha.dev/pkg/subject"
)

// hostile is what must never become a token of a subject.
var hostile = []string{
	"", " ", ".", "*", ">", "a.b", "a.*", "a.>", "a b", "a\tb", "a\r\nb", "a\n", "\x00", "a\x00",
	"é", "a/b", "a:b", "$SYS", "a\u200bb", "\xff", "../x", strings.Repeat("a", 65),
}

func TestAnIDIsOneTokenOfASubject(t *testing.T) {
	for _, s := range []string{"a", "A-1_b", "0", "-", "_", strings.Repeat("a", 64)} {
		if id, err := subject.Parse[subject.Session](s); err != nil || string(id) != s {
			t.Errorf("Parse(%q) = %q, %v", s, id, err)
		}
	}
	for _, s := range hostile {
		if subject.Valid(s) || subject.Valid([]byte(s)) {
			t.Errorf("Valid(%q)", s)
		}
		if id, err := subject.Parse[subject.Agent](s); !errors.Is(err, subject.ErrInvalidID) || id != "" {
			t.Errorf("Parse(%q) = %q, %v, want ErrInvalidID", s, id, err)
		}
	}
}

func TestErrorsNameTheKindOfID(t *testing.T) {
	check := func(kind string, err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), kind+` "a.b"`) {
			t.Errorf("the error does not name %s: %v", kind, err)
		}
	}
	_, err := subject.Parse[subject.Agent]("a.b")
	check("agent", err)
	_, err = subject.Parse[subject.Session]("a.b")
	check("session", err)
	_, err = subject.Parse[subject.Writer]("a.b")
	check("writer", err)
	_, err = subject.Parse[subject.Instance]("a.b")
	check("instance", err)
	_, err = subject.Parse[subject.Plugin]("a.b")
	check("plugin", err)
	_, err = subject.ParseRef("ok", "a.b")
	check("session", err)
}
