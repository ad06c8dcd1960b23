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

// Answer is the outcome of one request to one plugin at one point.
type Answer struct {
	Plugin  subject.Plugin
	Body    []byte      // the raw reply; empty means continue
	Err     error       // why there is no reply: the plugin was late or down, or reported an error
	OnError OnErrorRule // how Err, or an invalid reply, is treated
	Judge   bool        // configuration names the plugin as a judge: it must answer a judgement
	Latency time.Duration
}

// Fold combines the answers at one point into a [Decision]. It is pure: the same answers
// result in the same decision, whenever they arrived.
//
// Create one with [NewFold] or [NewJudgement]. Add the answers of a chain one by one, and
// answers to parallel requests together, in the order of registration. Then call
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

// Seen is the call that one plugin was asked about at before_act, after its changes.
type Seen struct {
	Plugin subject.Plugin
	Data   json.RawMessage
}

// NewFold returns a fold for a point, with the point's payload. The step is the call at
// before_act and after_act, else empty.
func NewFold(p Point, step string, data json.RawMessage) *Fold {
	return &Fold{point: p, step: step, data: data}
}

// Fits sets a function that checks the arguments that a plugin returns at before_act, and
// fills in their defaults, before the next plugin is asked. If check returns an error, the
// plugin has failed.
func (f *Fold) Fits(check func(args json.RawMessage) (json.RawMessage, error)) { f.fits = check }

// NewJudgement returns a fold for the second phase of before_act, with the call as it will
// run. Nothing changes the call any more: a judge can only continue, deny or confirm. If a
// plugin that is not a judge replaces the arguments again, that counts as confirm, unless it
// changes nothing.
func NewJudgement(step string, data json.RawMessage) *Fold {
	return &Fold{point: BeforeAct, step: step, data: data, judging: true}
}

// Data returns the payload for the next plugin of a chain.
func (f *Fold) Data() json.RawMessage { return f.data }

// Over reports whether no further plugin is asked, because one has denied, stopped or
// answered.
func (f *Fold) Over() bool { return f.denied || f.stopped || f.answered }

// Denied reports whether a plugin has denied, which overrides all other answers.
func (f *Fold) Denied() bool { return f.denied }

// Failure is a plugin whose answer was not used, and why.
type Failure struct {
	Plugin subject.Plugin
	Err    error
}

// Add adds answers to requests with the same data, in the given order. It returns the
// plugins that failed.
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
		v := Verdict{
			Point: f.point, Plugin: a.Plugin, Step: f.step, Verb: r.Verb, Reason: clip(r.Reason, maxReason),
			LatencyUS: a.Latency.Microseconds(),
		}
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

// ErrTooLittleTime means that a plugin was not asked, or had less time than its deadline,
// because earlier plugins took too long. At before_act it is asked again with the judges.
var ErrTooLittleTime = errors.New("the time of the hook point was used up")

// see records which call a plugin has agreed to, for the judgement.
func (f *Fold) see(p subject.Plugin, base json.RawMessage, r Reply, err error) {
	if f.point != BeforeAct || f.judging || errors.Is(err, ErrTooLittleTime) {
		return
	}
	left := base // also if the plugin failed: it was asked about this call only
	if err == nil && r.Verb == Replace {
		left, _ = merge(f.point, base, base, r.Data) // replace has just done the same without error
		if f.fits != nil {
			left, _ = f.fitted(left)
		}
	}
	f.seen = append(f.seen, Seen{p, left})
}

// judgement returns how an answer counts in the second phase, when the call cannot change.
func (f *Fold) judgement(a Answer, r Reply) (Reply, error) {
	switch r.Verb {
	case Replace, Stop, AnswerFor:
	default:
		return r, nil
	}
	if a.Judge {
		return Reply{}, fmt.Errorf("a judge answered %s; want continue, deny or confirm", r.Verb)
	}
	if r.Verb == Replace {
		if again, err := merge(f.point, f.data, f.data, r.Data); err != nil || !sameJSON(again, f.data) {
			return Reply{Verb: Confirm, Warning: &Warning{
				Level: LevelWarn, Message: "would change the arguments shown, which a later plugin has changed",
			}}, err
		}
	}
	return Reply{Verb: Continue}, nil
}

// maxReason is the maximum length of the texts in a verdict, in bytes.
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

// and adds a plugin's warning, prefixed with the plugin's name and on one line, so that no
// plugin can imitate another one or policy.
func (w *Warning) and(p subject.Plugin, other Warning) *Warning {
	text := strings.Join(strings.Fields(clip(other.Message, maxReason)), " ")
	return w.Join(&Warning{Level: other.Level, Message: "plugin " + string(p) + ": " + text})
}

// Join combines both warnings: the higher level, and the text of w before that of other.
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

// Decision returns the result: deny takes precedence over answer, answer over confirm, and
// confirm over replace. Its Data is the payload as the plugins have changed it, also with
// Confirm and AnswerFor.
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

// read decodes a reply. Deny and confirm count even if the rest of the reply is invalid.
func (f *Fold) read(a Answer) (Reply, error) {
	if a.Err != nil {
		return Reply{}, a.Err
	}
	if len(a.Body) > MaxReply {
		return Reply{}, fmt.Errorf("the reply has %d bytes, at most %d", len(a.Body), MaxReply)
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
			r.Reason = fmt.Sprintf("denied by %s without a reason", a.Plugin)
		}
	case Confirm:
		if r.Warning == nil {
			r.Warning = &Warning{Level: LevelWarn, Message: "requires a person's decision, without giving a reason"}
		}
	}
	return r, nil
}

// ReadReply decodes a plugin's reply as schemas/hooks/reply.json defines it. An empty body
// means continue. The reason of deny and the warning of confirm may be missing: a policy's
// denial must hold even if it is malformed.
func ReadReply(body []byte) (Reply, error) {
	if len(bytes.TrimSpace(body)) == 0 || string(body) == `{"verb":"continue"}` {
		return Reply{Verb: Continue}, nil // nearly every reply
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(body, &fields); err != nil {
		return Reply{}, fmt.Errorf("the reply is not a JSON object: %w", err)
	}
	if fields == nil {
		return Reply{}, errors.New("the reply is null; send an object or an empty body")
	}
	if err := strictjson.Names(body, &Reply{}); err != nil && !says(fields["verb"], DenyVerb) {
		return Reply{}, fmt.Errorf("invalid reply: %w", err)
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
			err = errors.New("unknown field; want one of verb, data, reason and warning")
		}
		if err != nil && r.Verb != DenyVerb && !says(fields["verb"], DenyVerb) {
			return Reply{}, fmt.Errorf("invalid reply: %s: %w", clip(name, 80), err)
		}
	}
	switch r.Verb {
	case Continue, Stop, DenyVerb, Confirm:
	case AnswerFor:
		if fields["data"] == nil {
			return Reply{}, errors.New("invalid reply: answer has no data")
		}
	case Replace:
		if d := bytes.TrimSpace(r.Data); len(d) == 0 || d[0] != '{' {
			return Reply{}, errors.New("invalid reply: the data of replace must be an object")
		}
	default:
		return Reply{}, fmt.Errorf("invalid reply: verb is %q, want continue, replace, stop, deny, confirm or answer",
			clip(string(r.Verb), 80))
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
