package nearest_test

import (
	"testing"

	"skandha.dev/services/internal/nearest"
)

func TestWord(t *testing.T) {
	known := []string{"agents", "policy", "hooks", "plugins", "ui", "limits"}
	for typed, want := range map[string]string{
		"agnets": "agents", "agent": "agents", "polic": "policy", "hoks": "hooks", "plugin": "plugins", "limit": "limits",
		"x": "", "": "", "u": "", "colour": "", "agents-of-mine": "",
	} {
		if got := nearest.Word(typed, known); got != want {
			t.Errorf("%q: %q, want %q", typed, got, want)
		}
	}
}
