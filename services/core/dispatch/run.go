package dispatch

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
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
func (t *HookSet) Run(env hook.Envelope) hook.Decision {
	return t.run(context.Background(), env, nil, nil)
}

// RunIn is like [HookSet.Run], but uses the trace of ctx and stops when ctx ends.
func (t *HookSet) RunIn(ctx context.Context, env hook.Envelope) hook.Decision {
	return t.run(ctx, env, nil, nil)
}

// RunOnly asks some of the plugins of the point.
func (t *HookSet) RunOnly(env hook.Envelope, only map[subject.Plugin]bool) hook.Decision {
	return t.run(context.Background(), env, only, nil)
}

// ShapeIn is [HookSet.RunIn] at before_act. fits checks the arguments that plugins return.
func (t *HookSet) ShapeIn(ctx context.Context, env hook.Envelope, fits Fits) hook.Decision {
	return t.run(ctx, env, nil, fits)
}

// Fits checks arguments and returns them with their defaults.
type Fits = func(args json.RawMessage) (json.RawMessage, error)

func (t *HookSet) run(ctx context.Context, env hook.Envelope, only map[subject.Plugin]bool, fits Fits) hook.Decision {
	p := t.points[env.Point]
	if p == nil {
		return hook.Decision{Verb: hook.Continue}
	}
	until := time.Now().Add(p.budget)
	fold := hook.NewFold(env.Point, env.Step, env.Data)
	fold.Fits(fits)
	var notices []string
	for i, segment := range p.segments {
		required := segment[0].Required // asked whatever the others answered, and however long they took
		if fold.Denied() || fold.Over() && !required {
			continue
		}
		if required && i > 0 && !p.segments[i-1][0].Required {
			until = time.Now().Add(p.budget)
		}
		env.Data = fold.Data()
		notices = append(notices, t.engine.askInto(ctx, fold, env, until, segment, only)...)
	}
	d := fold.Decision()
	d.Notices = notices
	return d
}

// Shape implements decide.Hooks; see [HookSet.ShapeIn].
func (t *HookSet) Shape(env hook.Envelope, fits Fits) hook.Decision {
	return t.ShapeIn(context.Background(), env, fits)
}

// Judge implements decide.Hooks; see [HookSet.JudgeIn].
func (t *HookSet) Judge(env hook.Envelope, shaped hook.Decision) hook.Decision {
	return t.JudgeIn(context.Background(), env, shaped)
}

// JudgeIn is the second phase of before_act, about the call in the form in which it will
// run. shaped is the result of the first phase. It asks the plugins that have not agreed to
// exactly this call, all at once, for at most the point's budget.
func (t *HookSet) JudgeIn(ctx context.Context, env hook.Envelope, shaped hook.Decision) hook.Decision {
	return t.judge(ctx, env, func(h *hooked) bool { return !agreed(shaped.Seen, h.Plugin, env.Data) })
}

// Rejudge implements decide.Hooks; see [HookSet.RejudgeIn].
func (t *HookSet) Rejudge(env hook.Envelope) hook.Decision {
	return t.RejudgeIn(context.Background(), env)
}

// RejudgeIn asks the judges named by the configuration about a call that passed earlier.
// Other plugins are not asked again, because that would cost a round trip to all of them
// after each attempt that did not run.
func (t *HookSet) RejudgeIn(ctx context.Context, env hook.Envelope) hook.Decision {
	return t.judge(ctx, env, func(h *hooked) bool { return h.Judge })
}

// judge asks the point's plugins for which pick returns true, all at once.
func (t *HookSet) judge(ctx context.Context, env hook.Envelope, pick func(*hooked) bool) hook.Decision {
	p := t.points[env.Point]
	if p == nil {
		return hook.Decision{Verb: hook.Continue}
	}
	var ask []hooked
	for i := range p.judged {
		if pick(&p.judged[i]) {
			ask = append(ask, p.judged[i])
		}
	}
	if len(ask) == 0 {
		return hook.Decision{Verb: hook.Continue}
	}
	fold := hook.NewJudgement(env.Step, env.Data)
	notices := t.engine.askInto(ctx, fold, env, time.Now().Add(p.budget), ask, nil)
	d := fold.Decision()
	d.Notices = notices
	return d
}

// agreed reports whether a plugin has been asked about exactly this call. If it failed
// then, the failure was already counted.
func agreed(seen []hook.Seen, p subject.Plugin, data json.RawMessage) bool {
	for _, s := range seen {
		if s.Plugin == p {
			return sameCall(s.Data, data)
		}
	}
	return false
}

// sameCall compares two payloads of before_act. Validation may have changed the order of
// the arguments' names.
func sameCall(a, b json.RawMessage) bool {
	if bytes.Equal(a, b) {
		return true
	}
	x, err1 := canonical(a)
	y, err2 := canonical(b)
	return err1 == nil && err2 == nil && bytes.Equal(x, y)
}

func canonical(data json.RawMessage) ([]byte, error) {
	var v any
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	return json.Marshal(v)
}

// askInto asks plugins at once and adds their answers to the fold. It returns the notices
// for the user.
func (e *Engine) askInto(
	ctx context.Context, fold *hook.Fold, env hook.Envelope, until time.Time, who []hooked, only map[subject.Plugin]bool,
) []string {
	answers := e.ask(ctx, env, until, who, only)
	failed := fold.Add(answers...)
	answers = slices.DeleteFunc(answers, func(a hook.Answer) bool {
		return a.Err == nil && slices.ContainsFunc(who, func(h hooked) bool { return h.Plugin == a.Plugin && h.observes(e) })
	})
	return e.account(ctx, env, who, answers, failed)
}

// ask asks the plugins of one segment at once, with the same data. The answers
// are in the order of the plugins.
func (e *Engine) ask(
	ctx context.Context, env hook.Envelope, until time.Time, segment []hooked, only map[subject.Plugin]bool,
) []hook.Answer {
	answers := make([]hook.Answer, 0, len(segment))
	r := round{
		until: until, began: time.Now(), questions: make([]bus.Question, 0, len(segment)),
		asked: make([]asked, 0, len(segment)),
	}
	for i := range segment {
		h := &segment[i]
		if only != nil && !only[h.Plugin] || !h.Judge && !h.Required && !e.cfg.Serves(h.Plugin, env.Agent) {
			continue
		}
		a := hook.Answer{Plugin: h.Plugin, OnError: h.OnError, Judge: h.Judge}
		if q, err := question(env, h, r.began, until); err != nil {
			a.Err, a.OnError = err, h.OnSilence
		} else if h.observes(e) {
			e.observe(ctx, env, h, q) // for the decision it says nothing
		} else {
			r.questions, r.asked = append(r.questions, q), append(r.asked, asked{len(answers), h})
		}
		answers = append(answers, a)
	}
	for len(r.questions) > 0 {
		e.send(ctx, &r, answers)
		if !e.again(ctx, env, &r, answers) {
			break
		}
	}
	return answers
}

// round is a set of questions that are sent at once.
type round struct {
	until, began time.Time
	questions    []bus.Question
	asked        []asked // one for each question
}

type asked struct {
	answer int // the index of its answer
	*hooked
}

// send sends the questions and fills in the answers.
func (e *Engine) send(ctx context.Context, r *round, answers []hook.Answer) {
	for i, got := range e.cfg.Ask(ctx, r.questions) {
		a, q := &answers[r.asked[i].answer], &r.questions[i]
		a.Body, a.Err, a.Latency = got.Data, got.Err, got.At.Sub(r.began)
		if a.Err == nil {
			a.Err = nesting.Check(a.Body)
		}
		if a.Err == nil {
			a.Err = e.allowed(r.asked[i].Hooked, a.Body)
		}
		// An answer after its deadline is late, even if this process was stalled and sees
		// the answer and the deadline together.
		switch {
		case got.At.Before(q.Deadline):
			if !errors.Is(a.Err, ErrAbsent) {
				continue
			}
		case q.Deadline.Equal(r.until):
			a.Body, a.Err = nil, hook.ErrTooLittleTime
		default:
			a.Body, a.Err = nil, fmt.Errorf("no answer within %v", q.Deadline.Sub(r.began))
		}
		a.OnError = r.asked[i].OnSilence
	}
}

// allowed returns an error if the plugin's charter does not grant the verb of its answer.
func (e *Engine) allowed(h Hooked, body []byte) error {
	var reply struct{ Verb hook.Verb }
	if len(body) == 0 || json.Unmarshal(body, &reply) != nil || reply.Verb == "" {
		return nil //nolint:nilerr // it means continue, or is reported as an invalid answer
	}
	if e.cfg.Allows(h.Plugin, h.Point, reply.Verb) {
		return nil
	}
	return fmt.Errorf("its charter does not grant %s at %s", reply.Verb, h.Point)
}

// askAgainIn is the delay before a plugin that is not connected is asked again.
const askAgainIn = 100 * time.Millisecond

// again waits a moment and reduces the round to the questions to be asked again: at
// before_act, those that were not delivered although the plugin's lease has not ended. A
// plugin that reconnects after a restart of the bus must not be skipped.
func (e *Engine) again(ctx context.Context, env hook.Envelope, r *round, answers []hook.Answer) bool {
	if env.Point != hook.BeforeAct {
		return false
	}
	left := 0
	for _, q := range r.asked {
		if errors.Is(answers[q.answer].Err, ErrAbsent) && e.HookSet().asks(env.Point, q.Plugin) {
			r.asked[left] = q
			left++
		}
	}
	if left == 0 || time.Until(r.until) < askAgainIn {
		return false
	}
	pause := time.NewTimer(askAgainIn)
	defer pause.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-pause.C:
	}
	r.asked, r.questions = r.asked[:left], r.questions[:0]
	now := time.Now()
	for _, q := range r.asked {
		question, err := question(env, q.hooked, now, r.until)
		if err != nil {
			return false
		}
		r.questions = append(r.questions, question)
	}
	return true
}

// asks reports whether a plugin is registered at a point and can be asked.
func (t *HookSet) asks(at hook.Point, p subject.Plugin) bool {
	return slices.ContainsFunc(t.Hooks(at), func(h Hooked) bool { return h.Plugin == p && h.Unasked == "" })
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// question returns the question to one plugin.
func question(env hook.Envelope, h *hooked, now, until time.Time) (bus.Question, error) {
	if h.Unasked != "" {
		return bus.Question{}, unasked(h.Unasked)
	}
	if !now.Before(until) {
		return bus.Question{}, hook.ErrTooLittleTime
	}
	deadline := earlier(now.Add(h.Deadline), until)
	return bus.Question{
		Subject: h.subject, Responder: string(h.Plugin), Body: encode(env, h.Plugin, deadline), Deadline: deadline,
	}, nil
}

// unasked is a failure that does not count against the plugin again.
type unasked string

func (u unasked) Error() string { return string(u) }

// encode writes the envelope as JSON, as json.Marshal would. Ids, turns and steps contain
// nothing that must be escaped, and the data is already JSON.
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

// appendInvocation appends the id of the question. The same id means the same data.
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

// account records statistics and counts failures in a row. It returns the notices for the
// user.
//
// A suspension must not turn a denial into a pass. So a plugin whose failure denies but
// whose silence would not is never suspended: other plugins could make it fail by the data
// that they pass on.
func (e *Engine) account(
	ctx context.Context, env hook.Envelope, who []hooked, answers []hook.Answer, failed []hook.Failure,
) []string {
	var notices []string
	for _, a := range answers {
		err, k := errorOf(failed, a.Plugin), key{env.Point, a.Plugin}
		if err != nil && a.OnError == hook.Allow && env.Point == hook.BeforeAct && e.noted.first(env, a.Plugin) {
			notices = append(notices, fmt.Sprintf("The plugin %s did not judge a tool call: %v. Calls run without it. "+
				"To deny them instead, list it under hooks.before_act.required in the configuration.", a.Plugin, err))
		}
		if _, ok := errors.AsType[unasked](err); ok {
			continue
		}
		e.stats.record(env.Point, a.Plugin, a.Latency, err)
		switch {
		case err == nil:
			e.blame.clear(k)
			if env.Point == hook.BeforeAct {
				e.noted.clear(env, a.Plugin)
			}
			continue
		case errors.Is(err, hook.ErrTooLittleTime), !e.cfg.Reachable():
			continue
		}
		e.cfg.Log.WarnContext(ctx, "a hook failed", "plugin", a.Plugin, "point", env.Point, "error", err, "on_error", a.OnError)
		if e.cfg.Failed != nil && env.Point != hook.OnError {
			go e.cfg.Failed(env, a.Plugin, err)
		}
		if a.OnError == hook.Deny && lenient(who, a.Plugin) {
			continue
		}
		if n := e.blame.add(k); e.cfg.SuspendAfter > 0 && n == e.cfg.SuspendAfter {
			reason := fmt.Sprintf("it failed %d times in a row, last at %s: %v", n, env.Point, err)
			notices = append(notices,
				fmt.Sprintf("The plugin %s is suspended: %s. To resume it, run `skandha plugins resume %s`.", a.Plugin, reason,
					a.Plugin))
			go e.cfg.Suspend(a.Plugin, reason)
		}
	}
	return notices
}

func errorOf(failed []hook.Failure, p subject.Plugin) error {
	for _, f := range failed {
		if f.Plugin == p {
			return f.Err
		}
	}
	return nil
}

// lenient reports whether the plugin's silence allows the call.
func lenient(who []hooked, p subject.Plugin) bool {
	return slices.ContainsFunc(who, func(h hooked) bool { return h.Plugin == p && h.OnSilence == hook.Allow })
}

// noted remembers the sessions whose users were notified that a plugin does not judge.
type noted struct {
	mu  sync.Mutex
	all map[notice]bool
}

type notice struct {
	agent   subject.Agent
	session subject.Session
	plugin  subject.Plugin
}

// maxNoted bounds the memory. Beyond it, users are notified again.
const maxNoted = 10_000

// first reports whether a notice is new in the session.
func (n *noted) first(env hook.Envelope, p subject.Plugin) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	k := notice{env.Agent, env.Session, p}
	if n.all[k] {
		return false
	}
	if n.all == nil || len(n.all) >= maxNoted {
		n.all = map[notice]bool{}
	}
	n.all[k] = true
	return true
}

func (n *noted) clear(env hook.Envelope, p subject.Plugin) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.all, notice{env.Agent, env.Session, p})
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
