package storm_test

import (
	"context"
	"testing"
	"time"

	. "skandha.dev/services/test/e2e/e2etest"
)

// The disk of the bus is full while inputs wait, are refused and are sent again. When
// there is room and an operator has restarted the server, everything that was
// acknowledged ends, once and with a true result.
func TestFullDisk(t *testing.T) {
	size, r := scaleOf(t), seeded(t)
	full := 5 * time.Second
	if size.long {
		full = time.Minute
	}
	s := deployment(t, Options{Providers: 1, Runners: 1, ProviderSlots: 4, Slots: 4, DiskMiB: 256})
	l := startLoad(t, s, r, 10)
	s.Tail.Await(t, "30 inputs end", func(l *Log) bool { return len(l.Terminals) >= 30 })
	s.Disk.Leave(0)
	Eventually(t, "the cores say that the log cannot be written", func() bool {
		st, err := s.Status()
		return err == nil && len(st.Faults) > 0
	})
	late := s.Client("late")
	said := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		seq, err := late.Say(ctx, "in-0", script(r).Text(), false)
		if err == nil {
			err = late.Ended(ctx, seq)
		}
		said <- err
	}()
	time.Sleep(full)
	var before int
	s.Tail.See(func(l *Log) { before = len(l.Terminals) })
	s.Disk.Resize(256)
	s.NATS.Kill()
	s.NATS.Start()
	again := time.Now()
	s.Tail.Await(t, "an input ends", func(l *Log) bool { return len(l.Terminals) > before })
	t.Logf("the first input ended %v after the restart", time.Since(again).Round(10*time.Millisecond))
	if err := <-said; err != nil {
		t.Error(err)
	}
	l.stop()
	l.clients = append(l.clients, late)
	l.check(judge(t, s))
	refused := map[string]int{}
	if late.Refusals(refused); len(refused) == 0 {
		t.Error("an input was taken while the disk was full")
	}
	t.Logf("the input that came to a full disk was refused because of %v", refused)
}
