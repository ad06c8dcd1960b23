package bounds_test

import (
	"log/slog"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"skandha.dev/services/internal/bounds"
)

type retry struct {
	Tries int `default:"3" min:"1" max:"10"`
}

type config struct {
	Listen  string        `default:"127.0.0.1:1"`
	Slots   int           `default:"16" min:"1" max:"4096"`
	Body    int64         `yaml:"max_body" default:"2 MiB" min:"64" max:"4 MiB"`
	WaitFor time.Duration `default:"30s" min:"0"`
	Idle    time.Duration `min:"0"`
	Rate    float64       `default:"2.5" min:"0"`
	Retry   retry
	Log     *slog.Logger
	private int
}

func TestDefaultsReplaceZeroFields(t *testing.T) {
	got := bounds.Filled(config{Slots: 5, private: 7})
	want := config{
		Listen: "127.0.0.1:1", Slots: 5, Body: 2 << 20, WaitFor: 30 * time.Second, Rate: 2.5, Retry: retry{3}, private: 7,
	}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if err := bounds.Check("", got); err != nil {
		t.Errorf("the defaults are out of bounds: %v", err)
	}
	if err := bounds.Check("", config{}); err != nil {
		t.Errorf("zero fields mean the defaults: %v", err)
	}
}

func TestAnErrorNamesTheKeyTheValueAndTheBounds(t *testing.T) {
	err := bounds.Check("a.", config{
		Slots: 5000, Body: 1, WaitFor: -1, Idle: -time.Second, Rate: math.NaN(), Retry: retry{-1},
	})
	want := []string{
		"a.slots is 5000, want 1 to 4096, or 0 for 16", "a.max_body is 1, want 64 to 4 MiB, or 0 for 2 MiB",
		"a.wait_for is -1ns, want 0 (default) or more", "a.idle is -1s, want 0 or more",
		"a.rate is NaN, want 0 (default) or more", "a.retry.tries is -1, want 1 to 10, or 0 for 3",
	}
	if err == nil || err.Error() != strings.Join(want, "\n") {
		t.Errorf("got\n%v\nwant\n%s", err, strings.Join(want, "\n"))
	}
}

func TestATagThatCannotBeReadPanics(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("it does not")
		}
	}()
	bounds.Filled(struct {
		N int `default:"many"`
	}{})
}

func TestTheTagsDescribeThemselves(t *testing.T) {
	for tag, want := range map[reflect.StructTag]string{
		``: "", `default:"main"`: "default main", `default:"30s" min:"0"`: "default 30s", `min:"0"`: "0 or more",
		`default:"2 MiB" min:"1" max:"4 MiB"`: "default 2 MiB; 1 to 4 MiB", `max:"9"`: "at most 9", `min:"1s"`: "at least 1s",
	} {
		if got := bounds.Describe(tag); got != want {
			t.Errorf("%s: %q, want %q", tag, got, want)
		}
	}
}
