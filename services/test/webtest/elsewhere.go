package webtest

import (
	"context"
	"fmt"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/plugin"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/client"
	"skandha.dev/services/internal/follow"
	"skandha.dev/services/internal/rights"
	"skandha.dev/services/internal/turn"
)

// elsewhere is a UI of the test's own, on the bus and not at the bridge.
func (r *Rig) elsewhere() (c *client.Client, leave func()) {
	r.t.Helper()
	b, err := r.System.Connect(context.Background(), "webtest-elsewhere") // one caller has a connection for itself
	if err != nil {
		r.t.Fatal(err)
	}
	c, err = client.New(b, "ui-elsewhere", r.log)
	if err != nil {
		r.t.Fatal(err)
	}
	return c, func() { _ = c.Close(); b.Close() }
}

func ref(session string) subject.Ref {
	return subject.Ref{Agent: "main", Session: subject.Session(session)}
}

// Say says something in a session of the agent main, as ui-elsewhere, and waits for the
// end of its turn. The bridge has no part in it.
func (r *Rig) Say(session, text string) {
	r.t.Helper()
	c, leave := r.elsewhere()
	defer leave()
	r.say(c, session, text)
}

// Fill says something in so many sessions, so many times, in turn.
func (r *Rig) Fill(sessions, times int, name string) {
	r.t.Helper()
	c, leave := r.elsewhere()
	defer leave()
	for n := range times {
		for s := range sessions {
			r.say(c, fmt.Sprint(name, s+1), fmt.Sprint("number ", n+1))
		}
	}
}

func (r *Rig) say(c *client.Client, session, text string) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	items, err := c.Follow(ctx, ref(session))
	if err != nil {
		r.t.Fatal(err)
	}
	seq, err := c.Say(ctx, ref(session), event.Input{Text: text, Source: "elsewhere"})
	if err != nil {
		r.t.Fatal(err)
	}
	in := turn.Input{Sequence: seq}
	if end, err := in.Follow(turn.Items(ctx, items), nil); err != nil || end.Recorded == nil {
		r.t.Fatalf("what was said elsewhere in %s ended with %+v, %v", session, end.Failed, err)
	}
}

// Answer answers the last confirmation request of a session of the agent main, as
// ui-elsewhere, and waits until the answer is decided on.
func (r *Rig) Answer(session string, approved bool, reason string) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, leave := r.elsewhere()
	defer leave()
	items, err := c.FollowFrom(ctx, ref(session), follow.Position{})
	if err != nil {
		r.t.Fatal(err)
	}
	for i := range items {
		decided := false
		err := event.Visitor{
			ToolCallRequest: func(q event.ToolCallRequest) {
				if err := c.Confirm(ctx, ref(session), q, approved, reason); err != nil {
					r.t.Fatal(err)
				}
			},
			ActConfirmed: func(event.ActConfirmed) { decided = true },
		}.Visit(i.Event)
		if err != nil && i.Event.Type != "" {
			r.t.Fatal(err)
		}
		if decided {
			return
		}
	}
	r.t.Fatalf("no request of %s was decided on", session)
}

// Log is every event of a session of the agent main, as it is stored.
func (r *Rig) Log(session string) []event.Event {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var all []event.Event
	for m, err := range r.Bus.Commits(ctx, ref(session), 0) {
		if err != nil {
			r.t.Fatal(err)
		}
		c, err := event.DecodeCommit(ref(session), m.Data)
		if err != nil {
			r.t.Fatal(err)
		}
		all = append(all, c.Events...)
	}
	return all
}

// Plug has a plugin take part until the test ends. When it returns, the tool, which is
// one of the plugin's, can be called.
func (r *Rig) Plug(m plugin.Manifest, tool string, h ...plugin.Handler) {
	r.t.Helper()
	if _, err := r.System.Invite(context.Background(), rights.Local(subject.Identity(m.Name))); err != nil {
		r.t.Fatal(err)
	}
	b, err := r.System.Connect(context.Background(), string(m.Name))
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- plugin.Serve(ctx, m, h, plugin.WithBus(b.Bus), plugin.WithLogger(r.log)) }()
	r.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			r.t.Errorf("the plugin %s ended: %v", m.Name, err)
		}
		b.Close()
	})
	r.eventually("core knows the tool "+tool, func(context.Context) bool {
		_, known := r.System.Core().Directory().Lookup(tool)
		return known
	})
}
