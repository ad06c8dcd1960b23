package chattest

import (
	"strings"
	"testing"
)

// Refused checks that a configuration is valid, and that each change makes it one that is refused
// with an error that contains the key.
func Refused[C interface{ Validate() error }](t *testing.T, valid C, changes map[string]func(*C)) {
	t.Helper()
	if err := valid.Validate(); err != nil {
		t.Error(err)
	}
	for want, change := range changes {
		c := valid
		change(&c)
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
	}
}
