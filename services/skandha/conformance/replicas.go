package conformance

import (
	"context"
	"fmt"
	"sync"
	"time"

	"skandha.dev/pkg/guide"
	"skandha.dev/pkg/plugin"
	"skandha.dev/pkg/subject"
)

// question is a request that the plugin can get over and over.
type question struct {
	subject string
	limit   time.Duration
	ask     func(context.Context) answer
}

// easiest returns the question with the least effect that the plugin answers; nil when it
// answers none.
func (s *suite) easiest() *question {
	for _, h := range s.manifest.Hooks {
		list, err := s.contract.questions(h.Point)
		if err != nil || s.failed("hook/"+string(h.Point)+"/answers") {
			continue
		}
		return &question{subject.Hook(string(h.Point), s.name()), hookDeadline(h), func(ctx context.Context) answer {
			return s.askHook(ctx, s.envelope(list[0], h), h)
		}}
	}
	for _, name := range s.manifest.Guides {
		subj := subject.Guide(s.name())
		if s.failed("guide/" + name) {
			continue
		}
		return &question{subj, backendLimit, func(ctx context.Context) answer {
			return s.ask(ctx, subj, mustJSON(guide.Request{Name: name, Agent: "main"}), backendLimit)
		}}
	}
	for _, t := range s.manifest.Tools {
		calls, skip := s.calls(t)
		if skip != "" || s.failed("tool/"+t.Name+"/answers") {
			continue
		}
		return &question{subject.Tool(s.name(), t.Name), t.Timeout(), func(ctx context.Context) answer {
			return s.askTool(ctx, t, s.call(t, calls[0]))
		}}
	}
	return s.stored()
}

func (s *suite) stored() *question {
	if s.manifest.Storage == nil || s.failed("storage") {
		return nil
	}
	for _, v := range s.manifest.Storage.Verbs {
		if v != plugin.Get {
			continue
		}
		subj := subject.Storage(s.name(), string(v))
		return &question{subj, backendLimit, func(ctx context.Context) answer {
			return s.ask(ctx, subj,
				mustJSON(plugin.StorageRequest{Verb: v, Agent: "main", Collection: "conformance", Key: "nothing"}), backendLimit)
		}}
	}
	return nil
}

// shared is how many questions two replicas share, all at once. The chance that one
// of the two gets none is 1 in 2^39.
const (
	shared  = 40
	workers = 8
)

func (s *suite) replicas(ctx context.Context, c *check) {
	var err error
	if s.second, err = s.spawn(ctx); err != nil {
		c.fail("a second process starts", err.Error(), "two processes of a plugin must be able to run on one machine")
		return
	}
	if !s.joined(ctx, c) {
		return
	}
	q := s.easiest()
	if q == nil {
		c.note("it answers nothing that could be shared: only the registration of both was checked")
		return
	}
	wait, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	s.second.tap.await(wait, s.second.gone, 0,
		func(e passage) bool { return e.sent && e.verb == "SUB" && e.subject == q.subject })
	pause(ctx, 100*time.Millisecond) // time for the bus to have it
	marks := map[*process]int{s.first: s.first.tap.mark(), s.second: s.second.tap.mark()}
	for _, a := range s.flood(ctx, q) {
		if !s.answered(c, q.subject, a, q.limit) {
			return
		}
	}
	got := map[*process]map[string]bool{}
	for p, mark := range marks {
		got[p] = map[string]bool{}
		for _, e := range p.tap.all()[mark:] {
			if !e.sent && e.carries() && e.subject == q.subject {
				got[p][e.reply] = true
			}
		}
	}
	twice := 0
	for reply := range got[s.first] {
		if got[s.second][reply] {
			twice++
		}
	}
	expected := fmt.Sprintf("%d questions on %s, each for one of two processes", shared, q.subject)
	advice := fmt.Sprintf("subscribe in the queue group %s: SUB %s %s <sid>", s.name(), q.subject, s.name())
	if n, m := len(got[s.first]), len(got[s.second]); twice > 0 {
		c.fail(expected, fmt.Sprintf("both got %d of them", twice), advice)
	} else if n == 0 || m == 0 {
		c.fail(expected, fmt.Sprintf("the first got %d, the second %d", n, m), advice)
	} else {
		c.note(fmt.Sprintf("of %d questions the first got %d, the second %d", shared, n, m))
	}
}

// joined waits until the second process is a replica of the first.
func (s *suite) joined(ctx context.Context, c *check) bool {
	const advice = "replicas send the same manifest, with an instance id that is new at each start"
	wait, cancel := context.WithTimeout(ctx, s.Within)
	defer cancel()
	if _, ok := s.second.tap.await(wait, s.second.gone, 0, isRegister); !ok {
		how, _ := s.second.ended()
		c.fail("a second process registers within "+seconds(s.Within), "it did not; "+orNoEnd(how)+lastWords(s.out), advice)
		return false
	}
	if i := instanceOf(s.second); i == instanceOf(s.first) {
		c.fail("two processes have two instance ids", "both have "+string(i), advice)
		return false
	}
	if _, err := s.word(ctx, s.second); err != nil {
		c.fail("a lease for the second process", err.Error(), advice)
		return false
	}
	if why := s.admitted(ctx, s.second); why != "" {
		c.fail("the second process is active within "+seconds(s.Within), why, advice)
		return false
	}
	return true
}

func orNoEnd(how string) string {
	if how == "" {
		return "it is still running"
	}
	return "it ended: " + how
}

// flood sends many questions at once.
func (s *suite) flood(ctx context.Context, q *question) []answer {
	out := make([]answer, shared)
	var g sync.WaitGroup
	for w := range workers {
		g.Go(func() {
			for i := w; i < shared; i += workers {
				out[i] = q.ask(ctx)
			}
		})
	}
	g.Wait()
	return out
}
