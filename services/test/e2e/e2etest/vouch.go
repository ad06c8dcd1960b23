package e2etest

import (
	"context"
	"encoding/json"
	"time"

	"skandha.dev/pkg/subject"
	contract "skandha.dev/services/internal/executor"
)

// Vouch announces an executor as it has announced itself, in its place, until the
// function that it returns is called: cores believe that it is there, whatever becomes
// of it, and however long it takes them to give it something.
func (s *System) Vouch(p *Proc) (stop func()) {
	s.T.Helper()
	nc := s.Bus.Conn()
	sub, err := nc.SubscribeSync(subject.AllAnnouncements)
	if err != nil {
		s.T.Fatal(err)
	}
	defer func() { _ = sub.Unsubscribe() }() // fails only if the connection has ended
	var a contract.Announcement
	for deadline := time.Now().Add(Patience); a.Instance == "" || s.NameOf(string(a.Instance)) != p.Role.Name || a.Draining ||
		a.Gone; {
		m, err := sub.NextMsg(time.Until(deadline))
		if err != nil {
			s.T.Fatalf("%s does not announce itself: %v", p.Role.Name, err)
		}
		a = contract.Announcement{}
		if err := json.Unmarshal(m.Data, &a); err != nil {
			s.T.Fatalf("an announcement cannot be read: %v", err)
		}
	}
	body, err := json.Marshal(a)
	if err != nil {
		s.T.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(contract.AnnounceEvery)
		defer tick.Stop()
		for ctx.Err() == nil {
			_ = nc.Publish(subject.Announce(a.Kind, a.Instance), body) // lost while the bus is away, as others are
			select {
			case <-ctx.Done():
			case <-tick.C:
			}
		}
	}()
	s.T.Cleanup(func() { stop(); <-done })
	return stop
}
