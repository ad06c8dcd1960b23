package retention

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"skandha.dev/pkg/event"
)

// Keep is what stays in the log. A zero field limits nothing.
type Keep struct {
	Age   time.Duration // a turn that ended longer ago leaves
	Turns int           // of each session, the latest
	Bytes int64         // of each session, the latest
	// Fill is how full the log may be before the oldest turns leave, in percent of its limit.
	Fill int
}

// Validate reports every field with an impossible value.
func (k Keep) Validate() error {
	var errs []error
	if k.Age < 0 {
		errs = append(errs, fmt.Errorf("retention.age is %v, want a duration, or 0 for no limit", k.Age))
	}
	if k.Turns < 0 {
		errs = append(errs, fmt.Errorf("retention.turns is %d, want a number of turns, or 0 for no limit", k.Turns))
	}
	if k.Bytes < 0 {
		errs = append(errs, fmt.Errorf("retention.bytes is %d, want a number of bytes, or 0 for no limit", k.Bytes))
	}
	if k.Fill < 0 || k.Fill > maxFill {
		errs = append(errs, fmt.Errorf("retention.fill is %d, want up to %d percent, or 0 to ignore how full the log is",
			k.Fill, maxFill))
	}
	return errors.Join(errs...)
}

// maxFill leaves a distance to the last tenth of the log, in which inputs are refused.
const maxFill = 85

// whole reports whether a session must be read to its end to know what leaves.
func (k Keep) whole() bool { return k.Turns > 0 || k.Bytes > 0 }

// commit is what the plan needs of a commit.
type commit struct {
	seq     uint64
	at      time.Time
	bytes   int64
	idle    bool // no turn is open after it
	ended   int  // inputs that it ends
	audited bool // the audit log has entries of it
}

func read(seq uint64, at time.Time, c event.Commit, bytes int) commit {
	out := commit{seq: seq, at: at, bytes: int64(bytes), idle: c.Header.Driver == 0}
	for i := range c.Events {
		if c.Events[i].Type.Terminal() {
			out.ended++
		}
	}
	return out
}

// limits are where the log may be cut, as of one run.
type limits struct {
	Keep
	before  time.Time // what was stored earlier is too old, if there is a limit of age
	settled time.Time // what was stored later is not looked at: something may still read it
	cut     uint64    // what is before it leaves, because the log is too full
	read    uint64    // everything derived from the log has read up to here
}

// plan is the choice for one session. Commits are added in order.
type plan struct {
	limits
	border            // after the commits that were added
	borders []border  // where the log can be cut
	due     time.Time // when the first commit that stays may be too old
	young   time.Time // of the first border that is too young, or not read yet; zero: there is none
}

// border is a place between two turns.
type border struct {
	last    uint64 // commit before it
	old     bool   // everything before it is too old, or must leave because the log is too full
	ended   int    // inputs before it that have ended
	bytes   int64  // of the commits before it
	audited uint64 // the last of them of which the audit log has entries
}

// add reports false once no later commit can change the choice.
func (p *plan) add(c commit) (more bool) {
	old := p.Age > 0 && c.at.Before(p.before) || c.seq < p.cut
	p.border = border{last: c.seq, old: old, ended: p.ended + c.ended, bytes: p.bytes + c.bytes, audited: p.audited}
	if c.audited {
		p.audited = c.seq
	}
	if !old && p.due.IsZero() && p.Age > 0 {
		p.due = c.at.Add(p.Age)
	}
	switch settled := c.at.Before(p.settled) && c.seq <= p.read; {
	case !c.idle:
	case !settled:
		if p.young.IsZero() {
			p.young = c.at
		}
	case old || p.whole():
		p.borders = append(p.borders, p.border)
	}
	if old || p.whole() {
		return true
	}
	// One more turn must follow what leaves.
	return len(p.borders) > 0 && p.ended == p.borders[len(p.borders)-1].ended
}

// again returns when the choice may be another one without a new commit; zero: never.
func (p *plan) again(settle time.Duration) time.Time {
	if p.young.IsZero() {
		return p.due
	}
	if at := p.young.Add(settle); p.due.IsZero() || at.Before(p.due) {
		return at
	}
	return p.due
}

// choose returns the last border up to which everything leaves, and false if nothing does. The latest turn stays.
func (p *plan) choose() (border, bool) {
	for _, b := range slices.Backward(p.borders) {
		stay := p.ended - b.ended
		if stay > 0 && (b.old || p.Turns > 0 && stay >= p.Turns || p.Bytes > 0 && p.bytes-b.bytes >= p.Bytes) {
			return b, true
		}
	}
	return border{}, false
}

// cutAt returns the sequence before which messages leave a log, so that it is filled to ten percent less than keep
// says; 0 if it is not too full. What is at the beginning may be what cannot leave: tries is how often in a row too
// little has left, and each doubles what is looked at.
func cutAt(keep Keep, bytes, most, messages, first, last uint64, tries int) uint64 {
	fill := uint64(keep.Fill) //nolint:gosec // validated
	if fill == 0 || most == 0 || bytes*100 <= most*fill || bytes == 0 || messages == 0 {
		return 0
	}
	excess := bytes - most*(max(fill, 10)-10)/100
	// As if all messages had the same size, and those that have left were spread evenly.
	share := min(float64(excess)/float64(bytes)*math.Exp2(float64(tries)), 1)
	return first + uint64(share*float64(last-first+1))
}
