package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	contract "skandha.dev/services/internal/executor"
	"skandha.dev/services/internal/journal"
	. "skandha.dev/services/test/e2e/e2etest"
)

// liar is a runner that speaks the protocol as it pleases.
type liar struct {
	t    *testing.T
	bus  *journal.Journal
	mu   sync.Mutex
	seen map[string]int // requests to run, by attempt
}

func startLiar(t *testing.T, s *System, lies ...string) *liar {
	t.Helper()
	l := &liar{t: t, seen: map[string]int{}, bus: s.As("toolrunner", "liar")}
	me := l.bus.Instance()
	r, err := l.bus.Respond(subject.Executor(subject.Runner, me), "", string(me), l.answer)
	if err != nil {
		t.Fatal(err)
	}
	a := contract.Announcement{
		Instance: me, Kind: subject.Runner, Service: "liar", Started: time.Now(),
		Pools: []contract.Pool{{Name: contract.DefaultPool, Slots: 64}},
	}
	for _, lie := range lies {
		a.Tools = append(a.Tools, tool.Spec{Name: "liar:" + lie, Args: json.RawMessage(`{"type":"object"}`), TimeoutMS: 1000})
	}
	body, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			_ = l.bus.Publish(ctx, subject.Announce(subject.Runner, me), nil, body)
			select {
			case <-ctx.Done():
			case <-time.After(contract.AnnounceEvery):
			}
		}
	}()
	t.Cleanup(func() { stop(); <-done; r.Stop() })
	return l
}

func (l *liar) answer(q *bus.Request) {
	var r contract.Request
	if err := json.Unmarshal(q.Data, &r); err != nil {
		l.t.Errorf("a request cannot be read: %v", err)
		return
	}
	yes, no := tool.OK("yes"), tool.Failure(tool.CodeFailed, "no")
	claim := tool.Failure(tool.CodeNotRun, "I did not run, really")
	say := func(a contract.Answer) {
		body, err := json.Marshal(a)
		if err == nil {
			err = q.Reply(body)
		}
		if err != nil {
			l.t.Errorf("answering: %v", err)
		}
	}
	of := func(st contract.State, res *tool.Result) contract.Answer {
		return contract.Answer{Call: r.Call, Attempt: r.Attempt, Instance: l.bus.Instance(), State: st, Result: res}
	}
	if r.Op == contract.OpRelease {
		return
	}
	if r.Op == contract.OpRun {
		l.mu.Lock()
		l.seen[r.Attempt]++
		l.mu.Unlock()
		switch strings.TrimPrefix(r.Tool.Name, "liar:") {
		case "garbage":
			_ = q.Reply([]byte(`{"state":`))
		case "nothing":
			_ = q.Reply(nil)
		case "unknown-state":
			say(of("splendid", &yes))
		case "no-result":
			say(of(contract.Finished, nil))
		case "two-results":
			say(of(contract.Finished, &yes))
			say(of(contract.Finished, &no))
		case "running-after-the-end":
			say(of(contract.Finished, &yes))
			say(of(contract.Running, nil))
		case "another-attempt":
			a := of(contract.Finished, &no)
			a.Attempt = "0123456789"
			say(a)
		case "it-did-not-run":
			say(of(contract.Finished, &claim))
		case "an-error":
			_ = q.ReplyError(errors.New("something"))
		case "always-running":
			say(of(contract.Running, nil))
		case "never-then-finished":
			say(of(contract.Never, nil))
			say(of(contract.Finished, &yes))
		}
		return
	}
	if r.Op == contract.OpStop || r.Op == contract.OpAsk {
		say(of(contract.Running, nil)) // it always says that it runs
	}
}

// Rules 8 and 9, with an executor that breaks the first: each call has one result
// all the same, within the turn's time, and no attempt is given out twice.
func TestARunnerThatLies(t *testing.T) {
	t.Parallel()
	lies := []string{
		"garbage", "nothing", "unknown-state", "no-result", "two-results", "running-after-the-end", "another-attempt",
		"it-did-not-run", "an-error", "always-running", "never-then-finished", "silence",
	}
	s := Start(t, Options{Cores: 2, Runners: -1, Config: "agents: {main: {limits: {wall: 1m}}}\n"})
	l := startLiar(t, s, lies...)
	s.AwaitExecutors(2)
	seqs := map[string]uint64{}
	for _, lie := range lies {
		seqs[lie] = s.Do(Ref(lie), Script{Rounds: []Round{{{ID: "1", Tool: "liar:" + lie}}}})
	}
	for _, lie := range lies {
		end := s.Ended(seqs[lie])
		k := awaitCall(t, s, seqs[lie], "has a result", done)
		t.Logf("%s: %v after %d attempts; %s %s", lie, k.Results, len(k.Requested), end.Failed, end.Reason)
		if k.Results[0] == "not_run" && lie != "never-then-finished" || k.Results[0] == "cancelled" {
			t.Errorf("%s: the result is %v, which only core may say", lie, k.Results)
		}
	}
	for _, lie := range lies {
		if end := s.Ended(s.Say(Ref(lie), "after")); end.Failed != "" {
			t.Errorf("%s: a turn after it ended as %+v", lie, end)
		}
	}
	l.mu.Lock()
	for attempt, n := range l.seen {
		if n != 1 {
			t.Errorf("attempt %s was given out %d times", attempt, n)
		}
	}
	l.mu.Unlock()
	healthy(t, s)
	s.Verify()
}
