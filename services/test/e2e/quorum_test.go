package e2e_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
	. "skandha.dev/services/test/e2e/e2etest"
	"skandha.dev/services/test/natstest"
)

// copied starts a system on three servers, with copies of the log on all of them.
func copied(t *testing.T, o Options) *System {
	t.Helper()
	o.Nodes, o.Relaxed = 3, true
	s := Start(t, o)
	s.AwaitCores(len(s.Cores))
	s.AwaitExecutors(len(s.Providers) + len(s.Runners))
	u := upset{s: s}
	u.addCopies()
	awaitCopies(t, s)
	return s
}

// awaitCopies waits until every stream and every consumer has its copies.
func awaitCopies(t *testing.T, s *System) {
	t.Helper()
	Eventually(t, "all copies to be whole", func() bool {
		u := upset{s: s}
		var all struct {
			Streams []struct {
				Config struct{ Name string } `json:"config"`
			} `json:"streams"`
		}
		body, err := u.ask("STREAM.LIST")
		if err != nil || json.Unmarshal(body, &all) != nil {
			return false
		}
		for _, x := range all.Streams {
			i, err := u.info(x.Config.Name)
			if err != nil || i.Config.Replicas != 3 || !i.whole() {
				return false
			}
			body, err := u.ask("CONSUMER.LIST." + x.Config.Name)
			var of struct {
				Consumers []streamInfo `json:"consumers"`
			}
			if err != nil || json.Unmarshal(body, &of) != nil {
				return false
			}
			for _, c := range of.Consumers {
				if c.Config.Replicas = 1 + len(c.Cluster.Replicas); !c.whole() {
					return false
				}
			}
		}
		return len(all.Streams) > 0
	})
}

// Two of three servers are lost. Core says so, and so does the error of an input's sender, before the
// servers themselves notice. Everything that was acknowledged ends exactly once when they are back
// (promises 1, 2, 4, 7).
func TestLostQuorum(t *testing.T) {
	t.Parallel()
	s := copied(t, Options{})
	seqs := []uint64{s.Do(Ref("a"), once(Args{N: 1})), s.Do(Ref("b"), once(Args{N: 2}))}
	s.Ended(seqs[0])
	for _, x := range []struct {
		what       string
		lose, back func(*Proc)
	}{
		{"stopped", (*Proc).Stall, (*Proc).Resume},
		{"killed", (*Proc).Kill, (*Proc).Start},
	} {
		at := time.Now()
		for _, n := range s.Nodes[:2] {
			x.lose(n)
		}
		const said = "2 of the 3 servers that keep the log cannot be reached"
		Eventually(t, "core to say that most servers are lost", func() bool {
			is, err := s.Status()
			for _, f := range is.Faults {
				if err == nil && strings.Contains(f.Message, said) {
					t.Logf("%s: core said so after %v", x.what, f.Since.Sub(at))
					return true
				}
			}
			return false
		})
		Eventually(t, "an input to be refused with that reason", func() bool {
			ctx, cancel := context.WithTimeout(natstest.Context(t), 5*time.Second)
			defer cancel()
			_, err := s.Bus.PublishCause(ctx, Ref("a"), subject.Input, "w", "refused", []byte("{}"))
			return err != nil && strings.Contains(err.Error(), said)
		})
		t.Logf("%s: a sender got that as its error after %v", x.what, time.Since(at))

		for _, n := range s.Nodes[:2] {
			x.back(n)
		}
		Eventually(t, "inputs to be taken again", func() bool { return s.Bus.StorageFault() == nil })
		t.Logf("%s: inputs are taken again after %v", x.what, time.Since(at))
		for i := range 2 {
			seqs = append(seqs, s.Do(Ref("a"), once(Args{N: len(seqs) + i})))
		}
		awaitCopies(t, s)
	}
	for _, seq := range seqs {
		s.Ended(seq)
	}
	report(t, s.Verify())
}

// One of three servers is cut off from the others, while a core and a sender are connected to it: both go
// elsewhere, and the system goes on without it.
func TestServerCutOff(t *testing.T) {
	t.Parallel()
	s := copied(t, Options{
		Cores: 2, Routed: true,
		URL: func(r Role, straight string) string {
			if r.Name != "core0" {
				return ""
			}
			first, _, _ := strings.Cut(straight, ",")
			return first
		},
	})
	first, _, _ := strings.Cut(s.URL, ",")
	sender := natstest.Dial(t, bus.Config{URL: first, Name: "sender", Credentials: s.Credentials("sender")})
	seqs := []uint64{s.Do(Ref("a"), once(Args{N: 1}))}
	s.Ended(seqs[0])

	s.Isolate(0)
	at := time.Now()
	for i := range 6 { // some sessions are driven by one core, some by the other
		ref := Ref("abcdef"[i : i+1])
		body := []byte(`{"text":"hello"}`)
		Eventually(t, "an input that was sent to the server to be stored", func() bool {
			ctx, cancel := context.WithTimeout(natstest.Context(t), 30*time.Second)
			defer cancel()
			seq, err := sender.PublishCause(ctx, ref, subject.Input, "w", "cut", body)
			if err == nil {
				seqs = append(seqs, seq)
			}
			return err == nil
		})
	}
	t.Logf("the sender's inputs were stored after %v", time.Since(at))
	for _, seq := range seqs {
		s.Ended(seq)
	}
	t.Logf("all inputs ended after %v", time.Since(at))
	s.Rejoin()
	awaitCopies(t, s)
	s.AwaitCores(2)
	s.Ended(s.Do(Ref("a"), once(Args{N: 2})))
	report(t, s.Verify())
}

// The disk of one of three servers is full: the others go on. When there is room and an operator has
// restarted the server, its copies become whole.
func TestFullDiskOfOneServer(t *testing.T) {
	t.Parallel()
	s := copied(t, Options{DiskMiB: 128})
	s.Ended(s.Do(Ref("a"), once(Args{N: 1})))
	s.Disk.Leave(0)
	at := time.Now()
	large := strings.Repeat("x", 200<<10)
	for i := range 20 { // more than there is room for
		s.Ended(s.Say(Ref("abcdef"[i%6:i%6+1]), large))
	}
	t.Logf("20 large inputs ended after %v", time.Since(at))
	Eventually(t, "the server to notice", func() bool { return strings.Contains(s.Nodes[0].Log(), "no space left on device") })
	s.Disk.Resize(128)
	s.Nodes[0].Kill()
	s.Nodes[0].Start()
	awaitCopies(t, s)
	s.Ended(s.Do(Ref("a"), once(Args{N: 2})))
	report(t, s.Verify())
}
