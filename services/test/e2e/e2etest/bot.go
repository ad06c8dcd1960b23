package e2etest

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
)

// Bot is the person in front of every session: it reads the log and does what
// the inputs' scripts say. It opens locked sessions again.
type Bot struct {
	s      *System
	inputs map[uint64]Script
	asked  map[uint64]int // requests of each turn so far
	given  map[uint64]bool
	read   int  // entries of the log that it has acted on; guarded by the tail's lock
	gone   bool // likewise
}

// Person runs a [Bot] until the test ends; the function that it returns ends it before.
func (s *System) Person() (stop func()) {
	b := &Bot{s: s, inputs: map[uint64]Script{}, asked: map[uint64]int{}, given: map[uint64]bool{}}
	s.bots = append(s.bots, b)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); b.run(ctx) }()
	stop = sync.OnceFunc(func() { cancel(); <-done })
	s.T.Cleanup(stop)
	return stop
}

func (b *Bot) run(ctx context.Context) {
	tail := b.s.Tail
	defer tail.change(func() { b.gone = true })
	for ctx.Err() == nil {
		var fresh []Entry
		var changed chan struct{}
		tail.mu.Lock()
		fresh, changed = append(fresh, tail.log.Entries[b.read:]...), tail.changed
		tail.mu.Unlock()
		for _, e := range fresh {
			b.hear(e)
		}
		if len(fresh) > 0 {
			tail.change(func() { b.read += len(fresh) })
			continue
		}
		select {
		case <-ctx.Done():
		case <-changed:
		}
	}
}

// quiet reports whether everybody has acted on what is in the log; the tail is locked.
func (s *System) quiet(l *Log) bool {
	return !slices.ContainsFunc(s.bots, func(b *Bot) bool { return !b.gone && b.read < len(l.Entries) })
}

func (b *Bot) hear(e Entry) {
	if e.Kind() == "input" {
		var in struct{ Text string }
		if json.Unmarshal(e.Data, &in) == nil {
			b.inputs[e.Seq] = ReadScript(in.Text)
		}
		return
	}
	if !e.IsCommit() {
		return
	}
	c, err := readCommit(e)
	if err != nil {
		return
	}
	ref := refOf(e)
	for _, ev := range c.Events {
		f, err := ev.fields()
		if err != nil {
			continue
		}
		switch ev.Type {
		case "skandha.ui.tool_call_request.v1":
			b.answer(ref, f)
		case "skandha.act.requested.v1":
			b.cancel(ref, TurnOf(f.Call))
		case "skandha.session.locked.v1":
			b.say(ref, subject.Command, event.Command{Name: "reset"})
		}
	}
}

// TurnOf reads the input's sequence from a call's id.
func TurnOf(call string) uint64 {
	name, _, _ := strings.Cut(strings.TrimPrefix(call, "t"), "-")
	n, _ := strconv.ParseUint(name, 10, 64)
	return n
}

func (b *Bot) conduct(turn uint64, nth int) Conduct {
	p := b.inputs[turn].Person
	if len(p) == 0 {
		return Approve // the breaker asks whether to go on
	}
	return p[min(nth, len(p)-1)]
}

func (b *Bot) answer(ref subject.Ref, f fields) {
	turn := TurnOf(f.ConfirmationID)
	nth := b.asked[turn]
	b.asked[turn]++
	yes := event.Confirmation{ConfirmationID: f.ConfirmationID, Hash: f.Hash, Approved: true}
	no := event.Confirmation{ConfirmationID: f.ConfirmationID, Hash: f.Hash, Reason: "no"}
	switch b.conduct(turn, nth) {
	case Approve, Cancel:
		b.say(ref, subject.Confirmation, yes)
	case Twice:
		b.say(ref, subject.Confirmation, yes)
		b.say(ref, subject.Confirmation, yes)
		b.say(ref, subject.Confirmation, no)
	case Deny:
		b.say(ref, subject.Confirmation, no)
	case Forge:
		b.forge(ref, yes)
		b.say(ref, subject.Confirmation, no)
	}
}

// forge says yes in every way that must not count.
func (b *Bot) forge(ref subject.Ref, yes event.Confirmation) {
	other := yes
	other.Hash = strings.Repeat("0", len(yes.Hash))
	b.say(ref, subject.Confirmation, other)
	other = yes
	other.ConfirmationID = fmt.Sprintf("t%d-p1-c0", TurnOf(yes.ConfirmationID)+1)
	b.say(ref, subject.Confirmation, other)
	other = yes
	other.Hash = ""
	b.say(ref, subject.Confirmation, other)
	b.say(subject.Ref{Agent: ref.Agent, Session: ref.Session + "-other"}, subject.Confirmation, yes)
	b.say(ref, subject.Timer, event.Timer{ID: yes.ConfirmationID}) // as the writer "bot", not core
}

func (b *Bot) cancel(ref subject.Ref, turn uint64) {
	p := b.inputs[turn].Person
	if len(p) == 0 || p[len(p)-1] != Cancel || b.given[turn] {
		return
	}
	b.given[turn] = true
	b.say(ref, subject.Cancel, event.Cancel{Sequence: turn, Reason: "by the script"})
}

func (b *Bot) say(ref subject.Ref, kind subject.CauseKind, body any) {
	data, err := json.Marshal(body)
	if err != nil {
		panic(fmt.Sprintf("e2etest: %v", err))
	}
	if _, err := b.s.publish(ref, kind, "bot", "", data); err != nil {
		b.s.T.Errorf("the bot could not say %s: %v", data, err)
	}
}
