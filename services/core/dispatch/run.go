package dispatch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/nesting"
)

// Run implements decide.Hooks: it asks the plugins of the envelope's point. It
// returns when all have answered or failed, at the latest after the point's budget.
func (t *Table) Run(env hook.Envelope) hook.Decision { return t.run(context.Background(), env, nil) }

// RunIn is [Table.Run] in the trace of ctx, and until it ends.
func (t *Table) RunIn(ctx context.Context, env hook.Envelope) hook.Decision {
	return t.run(ctx, env, nil)
}

// RunOnly asks some of the plugins of the point.
func (t *Table) RunOnly(env hook.Envelope, only map[subject.Plugin]bool) hook.Decision {
	return t.run(context.Background(), env, only)
}

func (t *Table) run(ctx context.Context, env hook.Envelope, only map[subject.Plugin]bool) hook.Decision {
	p := t.points[env.Point]
	if p == nil {
		return hook.Decision{Verb: hook.Continue}
	}
	until := time.Now().Add(p.budget)
	fold := hook.NewFold(env.Point, env.Step, env.Data)
	var notices []string
	for _, segment := range p.segments {
		env.Data = fold.Data()
		answers := t.engine.ask(ctx, env, until, segment, only)
		failed := fold.Add(answers...)
		notices = append(notices, t.engine.judge(env, segment, answers, failed)...)
		if fold.Over() {
			break
		}
	}
	d := fold.Decision()
	d.Notices = notices
	return d
}

// errBudget is why a plugin was not waited for: others before it took too long.
var errBudget = errors.New("the time of the hook point was used up")

// ask asks the plugins of one segment at once, with the same data. The answers
// are in the order of the plugins.
func (e *Engine) ask(ctx context.Context, env hook.Envelope, until time.Time, segment []hooked, only map[subject.Plugin]bool) []hook.Answer {
	answers := make([]hook.Answer, 0, len(segment))
	questions := make([]bus.Question, 0, len(segment))
	asked := make([]int, 0, len(segment)) // the answer to each question
	began := time.Now()
	for _, h := range segment {
		if only != nil && !only[h.Plugin] {
			continue
		}
		a := hook.Answer{Plugin: h.Plugin, OnError: h.OnError}
		if q, err := question(env, h, began, until); err != nil {
			a.Err = err
		} else {
			asked, questions = append(asked, len(answers)), append(questions, q)
		}
		answers = append(answers, a)
	}
	if len(questions) == 0 {
		return answers
	}
	for i, r := range e.cfg.Ask(ctx, questions) {
		a, q := &answers[asked[i]], questions[i]
		a.Body, a.Err, a.Latency = r.Data, r.Err, r.At.Sub(began)
		if a.Err == nil {
			a.Err = nesting.Check(a.Body)
		}
		if r.At.Before(q.Deadline) {
			continue
		}
		// Late is late, also when this process was held up so that it hears of the
		// answer and of the deadline together.
		if a.Body, a.Err = nil, errBudget; !q.Deadline.Equal(until) {
			a.Err = fmt.Errorf("no answer within %v", q.Deadline.Sub(began))
		}
	}
	return answers
}

// question is what one plugin is asked.
func question(env hook.Envelope, h hooked, now, until time.Time) (bus.Question, error) {
	if h.Unasked != "" {
		return bus.Question{}, unasked(h.Unasked)
	}
	if !now.Before(until) {
		return bus.Question{}, errBudget
	}
	deadline := now.Add(h.Deadline)
	if until.Before(deadline) {
		deadline = until
	}
	return bus.Question{
		Subject: h.subject, Responder: string(h.Plugin), Body: encode(env, h.Plugin, deadline), Deadline: deadline,
	}, nil
}

// unasked is a failure for which the plugin is not to be blamed again.
type unasked string

func (u unasked) Error() string { return string(u) }

// encode writes the envelope as JSON, as json.Marshal would: ids, turns and steps
// hold nothing that must be escaped, and the data is JSON already.
func encode(env hook.Envelope, p subject.Plugin, deadline time.Time) []byte {
	b := make([]byte, 0, 512+len(env.Data))
	b = append(b, `{"invocation_id":"`...)
	b = appendInvocation(b, env, p)
	b = appendField(b, `","point":"`, string(env.Point))
	b = appendField(b, `","plugin":"`, string(p))
	b = appendField(b, `","agent":"`, string(env.Agent))
	if env.Session != "" {
		b = appendField(b, `","session":"`, string(env.Session))
	}
	if env.Turn != "" {
		b = appendField(b, `","turn":"`, env.Turn)
	}
	b = append(b, '"')
	if env.Cause != 0 {
		b = append(b, `,"cause":`...)
		b = strconv.AppendUint(b, env.Cause, 10)
	}
	if env.Step != "" {
		b = append(appendField(b, `,"step":"`, env.Step), '"')
	}
	b = append(b, `,"deadline":"`...)
	b = deadline.UTC().AppendFormat(b, time.RFC3339Nano)
	b = append(b, `","data":`...)
	b = append(b, env.Data...)
	return append(b, '}')
}

func appendField(b []byte, name, value string) []byte { return append(append(b, name...), value...) }

// appendInvocation names the question: the same id, the same data.
func appendInvocation(b []byte, env hook.Envelope, p subject.Plugin) []byte {
	for _, part := range [...]string{string(env.Agent), string(env.Session), env.Turn} {
		b = append(append(b, cmp.Or(part, "-")...), '/')
	}
	b = strconv.AppendUint(b, env.Cause, 10)
	for _, part := range [...]string{string(env.Point), env.Step, string(p)} {
		b = append(append(b, '/'), cmp.Or(part, "-")...)
	}
	const offset, prime = 14695981039346656037, 1099511628211 // FNV-1a
	sum := uint64(offset)
	for _, c := range env.Data {
		sum = (sum ^ uint64(c)) * prime
	}
	return strconv.AppendUint(append(b, '/'), sum, 16)
}

// judge keeps statistics and who has failed how often; it returns the notices for
// the person.
func (e *Engine) judge(env hook.Envelope, segment []hooked, answers []hook.Answer, failed []hook.Failure) []string {
	var notices []string
	why := make(map[subject.Plugin]error, len(failed))
	for _, f := range failed {
		why[f.Plugin] = f.Err
	}
	for _, a := range answers {
		err := why[a.Plugin]
		var silent unasked
		if errors.As(err, &silent) {
			continue
		}
		e.stats.record(segment[0].Point, a.Plugin, a.Latency, err)
		switch {
		case err == nil:
			e.blame.clear(key{segment[0].Point, a.Plugin})
			continue
		case errors.Is(err, errBudget), !e.cfg.Reachable():
			continue
		}
		e.cfg.Log.Warn("a hook failed", "plugin", a.Plugin, "point", segment[0].Point, "error", err, "on_error", a.OnError)
		if e.cfg.Failed != nil && env.Point != hook.OnError {
			go e.cfg.Failed(env, a.Plugin, err)
		}
		if n := e.blame.add(key{segment[0].Point, a.Plugin}); e.cfg.SuspendAfter > 0 && n == e.cfg.SuspendAfter {
			reason := fmt.Sprintf("it failed %d times in a row, last at %s: %v", n, segment[0].Point, err)
			notices = append(notices, fmt.Sprintf("The plugin %s is suspended: %s. `skandha plugins resume %s` asks it again.", a.Plugin, reason, a.Plugin))
			go e.cfg.Suspend(a.Plugin, reason)
		}
	}
	return notices
}

// blame counts failures in a row.
type blame struct {
	mu    sync.Mutex
	count map[key]int
}

func (b *blame) add(k key) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.count == nil {
		b.count = map[key]int{}
	}
	b.count[k]++
	return b.count[k]
}

func (b *blame) clear(k key) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.count, k)
}
