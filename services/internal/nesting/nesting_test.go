package nesting_test

import (
	"testing"

	"skandha.dev/services/internal/nesting"
)

func TestDepth(t *testing.T) {
	for text, want := range map[string]int{
		``:                    0,
		`"[[["`:               0,
		`{}`:                  1,
		`[[],[[]],[]]`:        3,
		`{"a":"\"[[","b":[]}`: 2,
		`{"a\\":[{}]}`:        3,
		`]]]`:                 0,
		`[[[`:                 3,
	} {
		if got := nesting.Depth([]byte(text)); got != want {
			t.Errorf("%s: %d, want %d", text, got, want)
		}
	}
	if n := testing.AllocsPerRun(10, func() { nesting.Depth([]byte(`{"a":[1]}`)) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
