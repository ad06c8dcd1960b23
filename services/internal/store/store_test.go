package store_test

import (
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"skandha.dev/services/internal/store"
)

func TestSuccessRate(t *testing.T) {
	for _, c := range []struct {
		stat store.ToolStat
		want float64
	}{
		{store.ToolStat{}, 0.5},
		{store.ToolStat{Used: 1, Succeeded: 1}, 2.0 / 3},
		{store.ToolStat{Used: 1}, 1.0 / 3},
		{store.ToolStat{Used: 1, Unknown: 1}, 1.0 / 3},
		{store.ToolStat{Used: 98, Succeeded: 98}, 0.99},
	} {
		if got := c.stat.SuccessRate(); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("%+v: %v, want %v", c.stat, got, c.want)
		}
	}
}

func TestMeanLatency(t *testing.T) {
	for _, c := range []struct {
		stat store.ToolStat
		want time.Duration
	}{
		{store.ToolStat{}, 0},
		{store.ToolStat{Used: 2, TotalLatencyMS: 3}, 1500 * time.Microsecond},
		{store.ToolStat{Used: 1, TotalLatencyMS: store.MaxDelta}, time.Duration(store.MaxDelta) * time.Millisecond},
	} {
		if got := c.stat.MeanLatency(); got != c.want {
			t.Errorf("%+v: %v, want %v", c.stat, got, c.want)
		}
	}
}

func TestCursorOrder(t *testing.T) {
	at := func(us int64, agent, session string) store.Cursor {
		return store.Cursor{Key: store.Key{Agent: agent, Session: session}, Micros: us}
	}
	sorted := []store.Cursor{
		store.First, at(9, "a", "b"), at(9, "b", "a"), at(9, "b", "b"), at(8, "a", "a"), at(0, "a", "a"),
	}
	if !slices.IsSortedFunc(sorted, store.Cursor.Compare) {
		t.Error("cursors are not in the order of listing")
	}
	for _, c := range sorted {
		if back, err := store.ParseCursor(c.String()); err != nil || back != c {
			t.Errorf("%+v comes back as %+v, %v", c, back, err)
		}
	}
}

// Every string parses as a position or is ErrInvalid.
func FuzzParseCursor(f *testing.F) {
	f.Add("")
	f.Add("nonsense!")
	f.Add(store.Cursor{Key: store.Key{Agent: "a", Session: "s"}, Micros: 1}.String())
	f.Add("_____________w")
	f.Fuzz(func(t *testing.T, s string) {
		c, err := store.ParseCursor(s)
		if err != nil {
			if !errors.Is(err, store.ErrInvalid) {
				t.Errorf("error is %v", err)
			}
			return
		}
		if back, err := store.ParseCursor(c.String()); err != nil || back != c {
			t.Errorf("%+v comes back as %+v, %v", c, back, err)
		}
	})
}
