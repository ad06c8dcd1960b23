package e2e_test

import (
	"fmt"
	"sync"
	"testing"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	. "skandha.dev/services/test/e2e/e2etest"
)

// Promises 1 and 4: two cores, one session, inputs of several publishers at once.
// All end, each once, in the order of the log.
func TestTwoCoresOneSession(t *testing.T) {
	t.Parallel()
	const publishers, each = 5, 10
	s := Start(t, Options{Cores: 2})
	s.AwaitCores(2)
	ref := Ref("busy")
	var all sync.WaitGroup
	for p := range publishers {
		all.Go(func() {
			for i := range each {
				script := Script{Tag: fmt.Sprintf("%d/%d", p, i)}
				if i%5 == 0 {
					script = once(Args{N: i})
				}
				s.Input(ref, subject.Writer(fmt.Sprintf("p%d", p)), event.Input{Text: script.Text(), ID: fmt.Sprint(i)})
			}
		})
	}
	all.Wait()
	log := s.Verify()
	var last Terminal
	ended := 0
	for _, e := range log.Causes("main.busy") {
		end := log.Terminals[e.Seq][0]
		if end.Failed != "" {
			t.Errorf("the input at %d ended as %s: %s", e.Seq, end.Failed, end.Reason)
		}
		if end.Commit <= last.Commit {
			t.Errorf("the input at %d ended in commit %d, one before it in %d", e.Seq, end.Commit, last.Commit)
		}
		last = end
		ended++
	}
	if ended != publishers*each {
		t.Errorf("%d inputs ended, want %d", ended, publishers*each)
	}
}

// Many sessions over three cores, some sixty at once: a machine that cannot keep up with
// what is delivered to it has cores that are taken for dead.
func TestManySessionsThreeCores(t *testing.T) {
	t.Parallel()
	sessions := 200
	if runMode() == short {
		sessions = 40
	}
	s := Start(t, Options{Cores: 3, Providers: 2, Runners: 2})
	s.AwaitCores(3)
	s.AwaitExecutors(4)
	var all sync.WaitGroup
	work := make(chan int, sessions)
	for i := range sessions {
		work <- i
	}
	close(work)
	for range 16 {
		all.Go(func() {
			var said []uint64
			for i := range work {
				if len(said) >= 4 {
					s.Ended(said[len(said)-4])
				}
				ref := Ref(fmt.Sprintf("s%d", i))
				s.Do(ref, once(Args{N: i}))
				said = append(said, s.Say(ref, "and then"))
			}
		})
	}
	all.Wait()
	log := s.Verify()
	for i := range sessions {
		for _, e := range log.Causes(fmt.Sprintf("main.s%d", i)) {
			if end := log.Terminals[e.Seq][0]; end.Failed != "" {
				t.Errorf("the input at %d ended as %s: %s", e.Seq, end.Failed, end.Reason)
			}
		}
	}
	if n := len(log.Last); n != sessions {
		t.Errorf("the log has %d sessions, want %d", n, sessions)
	}
}
