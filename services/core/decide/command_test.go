package decide_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/core/decide"
)

func TestCommands(t *testing.T) {
	t.Run("are answered beside the running turn", func(t *testing.T) {
		for _, name := range []string{"help", "/help", "tools", "provider", "metrics"} {
			w := newWorld(t)
			in := w.say("x")
			c := w.cause(subject.Command, "web", fmt.Sprintf(`{"name":%q}`, name))
			w.process(c, nil)
			w.ends(c.Sequence, "recorded")
			r := events[event.Recorded](w)[0]
			if r.Command != strings.TrimPrefix(name, "/") || r.Answer == "" || w.state.Driver != in.Sequence {
				t.Fatalf("%s: %+v, driver %d", name, r, w.state.Driver)
			}
			for _, e := range w.last().Events {
				if e.Turn != "" {
					t.Fatalf("%s is told as of turn %s", e.Type, e.Turn)
				}
			}
			w.final("done")
			w.ends(in.Sequence, "recorded")
		}
	})
	for _, c := range []struct{ name, body, want string }{
		{"unknown", `{"name":"quit"}`, "unknown_command"},
		{"garbage", `{`, "malformed"},
		{"an id too long", `{"name":"help","id":"` + strings.Repeat("i", 129) + `"}`, "malformed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			x := w.cause(subject.Command, "web", c.body)
			w.process(x, nil)
			w.ends(x.Sequence, c.want)
		})
	}
	t.Run("a repeated one is a duplicate", func(t *testing.T) {
		w := newWorld(t)
		one, two := w.cause(subject.Command, "web", `{"name":"help","id":"1"}`), w.cause(subject.Command, "web", `{"name":"reset","id":"1"}`)
		w.process(one, nil)
		w.process(two, nil)
		w.ends(one.Sequence, "recorded")
		w.ends(two.Sequence, "duplicate_of")
	})
	t.Run("a repeated envelope is a duplicate", func(t *testing.T) {
		w := newWorld(t)
		first := w.say("one")
		body := `{"specversion":"1.0","id":"e1","source":"ui","type":"skandha.sense.command.v1","data":{"name":"cancel"}}`
		w.process(w.cause(subject.Command, "web", body), nil)
		w.ends(first.Sequence, "cancelled")
		second := w.say("two")
		again := w.cause(subject.Command, "web", body)
		w.process(again, nil)
		w.ends(again.Sequence, "duplicate_of")
		w.ends(second.Sequence, "")
	})
	t.Run("/reset ends everything, forgets and unlocks", func(t *testing.T) {
		w := newWorld(t)
		lock(w)
		c := w.cause(subject.Command, "web", `{"name":"/reset"}`)
		w.process(c, nil)
		w.ends(c.Sequence, "recorded")
		one, two := w.say("one"), w.say("two")
		c = w.cause(subject.Command, "web", `{"name":"/reset"}`)
		w.process(c, nil)
		w.ends(one.Sequence, "reset")
		w.ends(two.Sequence, "reset")
		w.ends(c.Sequence, "recorded")
		if w.state.Locked != "" || len(w.state.Window) != 0 || w.state.Driver != 0 || !slices.Equal(w.state.Breaker.Recent, nil) {
			t.Fatalf("%+v", w.state)
		}
		w.reload()
	})
	t.Run("/cancel ends what ran when it was stored", func(t *testing.T) {
		w := newWorld(t)
		one, two := w.say("one"), w.say("two")
		c := w.cause(subject.Command, "web", `{"name":"/cancel"}`)
		w.process(c, nil)
		w.ends(one.Sequence, "cancelled")
		w.ends(c.Sequence, "recorded")
		if w.state.Turn.Sequence != two.Sequence {
			t.Fatal("the next one has not begun")
		}
	})
	t.Run("/cancel hits no turn that began after it was stored", func(t *testing.T) {
		w := newWorld(t)
		in := w.cause(subject.Input, "web", `{"text":"x"}`)
		c := w.cause(subject.Command, "web", `{"name":"/cancel"}`)
		w.process(in, nil) // its commit stands behind the command
		if must := decide.MustClose(w.state, c); len(must) > 0 {
			t.Fatal("it would stop calls")
		}
		w.process(c, nil)
		w.ends(in.Sequence, "")
		w.ends(c.Sequence, "recorded")
	})
}
