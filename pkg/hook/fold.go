package hook

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"skandha.dev/pkg/strictjson"
	"skandha.dev/pkg/subject"
)

// Answer is what came of asking one plugin at one point.
type Answer struct {
	Plugin  subject.Plugin
	Body    []byte      // its reply, as it came; empty means continue
	Err     error       // why there is no reply: it was late, down, or reported an error
	OnError OnErrorRule // what Err, or a reply that cannot be understood, counts as
	Judge   bool        // configuration names it: its answer to a judgement has to be one
	Latency time.Duration
}

// Fold composes the answers at one point into a [Decision]. It is pure: the same
// answers give the same decision, whenever they came.
//
// Make one with [NewFold]; add a chain's answers one by one and answers that were
// asked for in parallel together, in the order of registration; then take
// [Fold.Decision].
type Fold struct {
	point    Point
	step     string
	judging  bool
	fits     func(json.RawMessage) (json.RawMessage, error)
	data     json.RawMessage
	replaced bool

	denied     bool
	reason     string
	answered   bool
	answer     json.RawMessage
	answeredBy subject.Plugin
	warning    *Warning
	stopped    bool
	seen       []Seen
	verdicts   []Verdict
}

// Seen is the call that one plugin was asked about at before_act, as it left it.
type Seen struct {
	Plugin subject.Plugin
	Data   json.RawMessage
}

// NewFold begins at a point with the point's payload. The step is the call at
// before_act and after_act, else empty.
func NewFold(p Point, step string, data json.RawMessage) *Fold {
	return &Fold{point: p, step: step, data: data}
}

// Fits has the arguments checked that a plugin leaves at before_act, and gives them their
// defaults, before another one is asked with them. A plugin whose replacement is refused
// has failed.
func (f *Fold) Fits(check func(args json.RawMessage) (json.RawMessage, error)) { f.fits = check }

// NewJudgement begins the second phase of before_act, with the call as it is to run.
// Nothing changes it any more: a judge continues, denies, or has a person asked. A
// plugin that configuration does not name and that shapes the call again is taken as
// wanting a person to decide, unless it would change nothing.
func NewJudgement(step string, data json.RawMessage) *Fold {
	return &Fold{point: BeforeAct, step: step, data: data, judging: true}
}

// Data is what the next plugin of a chain is asked with.
func (f *Fold) Data() json.RawMessage { return f.data }

// Over reports whether nobody else is to be asked: something was denied, stopped
// or answered.
func (f *Fold) Over() bool { return f.denied || f.stopped || f.answered }

// Denied reports whether something was denied, so that nothing else counts.
func (f *Fold) Denied() bool { return f.denied }

// Failure says that a plugin's answer counted as none, and why.
type Failure struct {
	Plugin subject.Plugin
	Err    error
}

// Add composes answers that were asked for with the same data, in the order given.
// It says whose answers failed.
func (f *Fold) Add(answers ...Answer) []Failure {
	base := f.data
	var failures []Failure
	for _, a := range answers {
		r, err := f.read(a)
		switch {
		case err != nil:
		case f.judging:
			r, err = f.judgement(a, r)
		case r.Verb == Replace:
			err = f.replace(base, r.Data)
		}
		v := Verdict{Point: f.point, Plugin: a.Plugin, Step: f.step, Verb: r.Verb, Reason: clip(r.Reason, maxReason), LatencyUS: a.Latency.Microseconds()}
		if err != nil {
			failures = append(failures, Failure{a.Plugin, err})
			v.Error = clip(err.Error(), maxReason)
			if v.Verb = Continue; a.OnError == Deny && f.point.Deniable() {
				v.Verb, v.Reason = DenyVerb, clip(fmt.Sprintf("the hook %s failed: %v", a.Plugin, err), maxReason)
				r = Reply{Verb: DenyVerb, Reason: v.Reason}
			} else {
				r = Reply{Verb: Continue}
			}
		}
		f.see(a.Plugin, base, r, err)
		f.take(a.Plugin, r)
		f.verdicts = append(f.verdicts, v)
	}
	return failures
}

// ErrTooLittleTime is why a plugin was not asked, or not for as long as it may take:
// others before it took too long. At before_act it is asked again, with the judges.
var ErrTooLittleTime = errors.New("the time of the hook point was used up")

// see notes what a plugin has agreed to, for the judgement.
func (f *Fold) see(p subject.Plugin, base json.RawMessage, r Reply, err error) {
	if f.point != BeforeAct || f.judging || errors.Is(err, ErrTooLittleTime) {
		return
	}
	left := base // also of one that failed: it was asked about this call and no other
	if err == nil && r.Verb == Replace {
		left, _ = merge(f.point, base, base, r.Data) // replace has just done it
		if f.fits != nil {
			left, _ = f.fitted(left)
		}
	}
	f.seen = append(f.seen, Seen{p, left})
}

// judgement is what an answer to the call as it is to run counts as.
func (f *Fold) judgement(a Answer, r Reply) (Reply, error) {
	switch r.Verb {
	case Replace, Stop, AnswerFor:
	default:
		return r, nil
	}
	if a.Judge {
		return Reply{}, fmt.Errorf("a judge answered %s; it can continue, deny or confirm", r.Verb)
	}
	if r.Verb == Replace {
		if again, err := merge(f.point, f.data, f.data, r.Data); err != nil || !sameJSON(again, f.data) {
			return Reply{Verb: Confirm, Warning: &Warning{
				Level: LevelWarn, Message: "wants other arguments than the ones shown, which a plugin after it has changed",
			}}, err
		}
	}
	return Reply{Verb: Continue}, nil
}

// maxReason bounds what a verdict quotes, in bytes.
const maxReason = 1000

func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}

func (f *Fold) take(p subject.Plugin, r Reply) {
	switch r.Verb {
	case DenyVerb:
		if !f.denied {
			f.denied, f.reason = true, clip(r.Reason, maxReason)
		}
	case AnswerFor:
		if !f.answered {
			f.answered, f.answer, f.answeredBy = true, r.Data, p
		}
	case Confirm:
		f.warning = f.warning.and(p, *r.Warning)
	case Stop:
		f.stopped = true
	}
}

// and adds what a plugin warns of, after its name and on one line, so that no plugin
// can speak for another one or for policy.
func (w *Warning) and(p subject.Plugin, other Warning) *Warning {
	text := strings.Join(strings.Fields(clip(other.Message, maxReason)), " ")
	return w.Join(&Warning{Level: other.Level, Message: "plugin " + string(p) + ": " + text})
}

// Join is both warnings in one: the higher level, and both texts, those of w first.
// Either may be nil.
func (w *Warning) Join(other *Warning) *Warning {
	switch {
	case other == nil:
		return w
	case w == nil:
		return other
	}
	joined := Warning{Level: w.Level, Message: clip(w.Message+"\n"+other.Message, 4*maxReason)}
	if other.Level.rank() > w.Level.rank() {
		joined.Level = other.Level
	}
	return &joined
}

func (l Level) rank() int {
	switch l {
	case LevelCritical:
		return 2
	case LevelWarn:
		return 1
	}
	return 0
}

// Decision is the result: a denial goes before an answer, an answer before a
// confirmation, a confirmation before a replacement. Data is what the plugins have
// made of the payload, also with Confirm and AnswerFor.
func (f *Fold) Decision() Decision {
	d := Decision{Verb: Continue, Verdicts: f.verdicts, Seen: f.seen, Warning: f.warning}
	if f.replaced {
		d.Verb, d.Data = Replace, f.data
	}
	switch {
	case f.denied:
		d.Verb, d.Reason, d.Data = DenyVerb, f.reason, nil
	case f.answered:
		d.Verb, d.Answer, d.AnsweredBy = AnswerFor, f.answer, f.answeredBy
	case f.warning != nil:
		d.Verb = Confirm
	}
	return d
}

// read understands a reply. A plugin that says deny or confirm means it, also
// when it says it badly.
func (f *Fold) read(a Answer) (Reply, error) {
	if a.Err != nil {
		return Reply{}, a.Err
	}
	if len(a.Body) > MaxReply {
		return Reply{}, fmt.Errorf("its reply has %d bytes, at most %d", len(a.Body), MaxReply)
	}
	r, err := ReadReply(a.Body)
	if err != nil {
		return Reply{}, err
	}
	if !f.point.Allows(r.Verb) {
		return Reply{}, fmt.Errorf("%s is not valid at %s", r.Verb, f.point)
	}
	switch r.Verb {
	case DenyVerb:
		if r.Reason == "" {
			r.Reason = fmt.Sprintf("denied by %s, without a reason", a.Plugin)
		}
	case Confirm:
		if r.Warning == nil {
			r.Warning = &Warning{Level: LevelWarn, Message: "wants a person to decide, and does not say why"}
		}
	}
	return r, nil
}

// ReadReply reads a plugin's reply by schemas/hooks/reply.json. An empty body
// means continue. Of deny the reason and of confirm the warning may be missing:
// what a policy forbids is not allowed because it says so badly.
func ReadReply(body []byte) (Reply, error) {
	if len(bytes.TrimSpace(body)) == 0 || string(body) == `{"verb":"continue"}` {
		return Reply{Verb: Continue}, nil // nearly every reply
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(body, &fields); err != nil {
		return Reply{}, fmt.Errorf("its reply is no JSON object: %w", err)
	}
	if fields == nil {
		return Reply{}, errors.New("its reply is null; send an object, or nothing")
	}
	if err := strictjson.Names(body, &Reply{}); err != nil && !says(fields["verb"], DenyVerb) {
		return Reply{}, fmt.Errorf("its reply: %w", err)
	}
	var r Reply
	for name, raw := range fields {
		var err error
		switch name {
		case "verb":
			err = json.Unmarshal(raw, &r.Verb)
		case "data":
			r.Data = raw
		case "reason":
			err = json.Unmarshal(raw, &r.Reason)
		case "warning":
			r.Warning, err = readWarning(raw)
		default:
			err = errors.New("is not a field of a reply; there are verb, data, reason and warning")
		}
		if err != nil && r.Verb != DenyVerb && !says(fields["verb"], DenyVerb) {
			return Reply{}, fmt.Errorf("its reply: %s: %w", clip(name, 80), err)
		}
	}
	switch r.Verb {
	case Continue, Stop, DenyVerb, Confirm:
	case AnswerFor:
		if fields["data"] == nil {
			return Reply{}, errors.New("its reply: answer without data")
		}
	case Replace:
		if d := bytes.TrimSpace(r.Data); len(d) == 0 || d[0] != '{' {
			return Reply{}, errors.New("its reply: replace without data, which must be an object")
		}
	default:
		return Reply{}, fmt.Errorf("its reply: verb is %q, want continue, replace, stop, deny, confirm or answer", clip(string(r.Verb), 80))
	}
	return r, nil
}

func says(raw json.RawMessage, v Verb) bool {
	var got Verb
	return json.Unmarshal(raw, &got) == nil && got == v
}

func readWarning(raw json.RawMessage) (*Warning, error) {
	var w Warning
	if err := strict(raw, &w); err != nil {
		return nil, err
	}
	if w.Message == "" {
		return nil, nil
	}
	switch w.Level {
	case LevelInfo, LevelWarn, LevelCritical:
	default:
		w.Level = LevelWarn
	}
	return &w, nil
}
