package timeline

import (
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/hook"
	"skandha.dev/services/internal/executor"
	"skandha.dev/services/internal/turn"
)

// asked is one verdict, and the time when its plugin was asked.
type asked struct {
	hook.Verdict
	about      turn.Part
	start, end time.Time
}

// moments holds the times within one commit.
type moments struct {
	began   time.Time // core had the commit's trigger
	first   time.Time // core began to ask plugins
	decided time.Time // the last plugin had answered
	stored  time.Time // the commit was in the log: from then on executors and people know of it
	asked   []asked
}

// momentsOf places what happened within a commit in time. The log records when the commit
// began and, by the bus's clock, when it was stored; plugins report how long they took. The
// time of a cause comes from the bus's clock too, so if a cause triggered the commit, the
// plugins were asked just before it was stored. The time of a reply comes from core's
// clock, which may differ: the plugins were asked right after it, and the time of storing
// is used as far as it is plausible.
//
// The log's times are truncated to milliseconds. What happened after prev, the moments of
// the previous commit, is not placed before them.
func momentsOf(c turn.Stored, prev moments, next time.Time) moments {
	m := moments{began: c.Header.Now, asked: place(c)}
	if prev.decided.After(m.began) {
		m.began = earlier(prev.decided, m.began.Add(time.Millisecond))
	}
	var work time.Duration
	for _, a := range m.asked {
		work = max(work, a.end.Sub(c.Header.Now))
	}
	first := m.began
	if c.Header.Trigger.Kind == event.ByCause && !c.At.IsZero() {
		first = later(first, c.At.Add(-work))
	}
	for i := range m.asked {
		m.asked[i].start = m.asked[i].start.Add(first.Sub(c.Header.Now))
		m.asked[i].end = m.asked[i].end.Add(first.Sub(c.Header.Now))
	}
	m.first, m.decided = first, first.Add(work)
	m.stored = m.decided
	most := m.decided.Add(executor.Skew)
	if !next.IsZero() {
		most = later(m.decided, next)
	}
	if c.At.After(m.stored) {
		m.stored = c.At
	}
	if m.stored.After(most) {
		m.stored = most
	}
	return m
}

// place assigns times to the verdicts of a commit as if asking had begun at its time: the
// plugins of a chain one after another, those of a parallel point together.
func place(c turn.Stored) []asked {
	out := make([]asked, len(c.Header.Hooks))
	parts := turn.PartsOf(c.Commit)
	at := c.Header.Now
	end := at
	for i, v := range c.Header.Hooks {
		together := i > 0 && v.Point.DefaultMode() == hook.Parallel &&
			v.Point == c.Header.Hooks[i-1].Point && v.Step == c.Header.Hooks[i-1].Step
		if !together {
			at = end
		}
		stop := at.Add(time.Duration(max(v.LatencyUS, 0)) * time.Microsecond)
		out[i] = asked{Verdict: v, about: parts[i], start: at, end: stop}
		end = later(end, stop)
	}
	return out
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
