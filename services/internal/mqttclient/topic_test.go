package mqttclient_test

import (
	"strings"
	"testing"

	"skandha.dev/services/internal/mqttclient"
)

func TestTopicsMatchFiltersAsMQTTSays(t *testing.T) {
	for _, c := range []struct {
		filter, topic string
		matches       bool
	}{
		{"a/b", "a/b", true},
		{"a/+", "a/b", true},
		{"+/b", "a/b", true},
		{"#", "a/b", true},
		{"a/#", "a", true},
		{"a/#", "a/b/c", true},
		{"a/+", "a/b/c", false},
		{"a", "a/b", false},
		{"a/b", "a", false},
		{"+", "/a", false},
		{"+/+", "/a", true},
		{"a/+", "a/", true},
		{"#", "$SYS/x", false},
		{"+/x", "$SYS/x", false},
		{"$SYS/#", "$SYS/x", true},
		{"a/+/c", "a//c", true},
	} {
		if got := mqttclient.Matches(c.filter, c.topic); got != c.matches {
			t.Errorf("%s matches %s: %t", c.filter, c.topic, got)
		}
	}
}

func TestOverlap(t *testing.T) {
	for _, c := range []struct {
		a, b     string
		overlaps bool
	}{
		{"a/+", "a/b", true},
		{"a/+", "+/b", true},
		{"a/#", "a", true},
		{"#", "x/y", true},
		{"a/b", "a/b", true},
		{"a/+", "b/+", false},
		{"a", "a/b", false},
		{"a/+/c", "a/b/d", false},
		{"a/b/#", "a/+", true},
	} {
		if x, y := mqttclient.Overlap(c.a, c.b), mqttclient.Overlap(c.b, c.a); x != c.overlaps || y != c.overlaps {
			t.Errorf("%s and %s overlap: %t, %t", c.a, c.b, x, y)
		}
	}
}

func TestTopicsAreChecked(t *testing.T) {
	for _, bad := range []string{"", "a/+", "a/#", "a\x00", "\xff", strings.Repeat("x", 2000)} {
		if mqttclient.CheckTopic(bad) == nil {
			t.Errorf("topic %q is taken", bad)
		}
	}
	for _, bad := range []string{"", "a+", "a/#/b", "a/b#", "\xff"} {
		if mqttclient.CheckFilter(bad) == nil {
			t.Errorf("filter %q is taken", bad)
		}
	}
}
