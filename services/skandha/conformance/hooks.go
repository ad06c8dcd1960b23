package conformance

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"time"

	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/plugin"
	"skandha.dev/pkg/subject"
)

// questions are the checks of what the plugin declares.
func (s *suite) questions() (out []step) {
	for _, h := range s.manifest.Hooks {
		out = append(out, s.hookSteps(h)...)
	}
	for i, t := range s.manifest.Tools {
		out = append(out, s.toolSteps(i, t)...)
	}
	out = append(out, s.providerSteps()...)
	out = append(out, s.storageSteps()...)
	return append(out, s.guideSteps()...)
}

func hookDeadline(h plugin.Hook) time.Duration {
	return cmp.Or(time.Duration(h.DeadlineMS)*time.Millisecond, hook.DefaultDeadline)
}

func (s *suite) hookSteps(h plugin.Hook) []step {
	at := "hook/" + string(h.Point)
	answers := at + "/answers"
	return []step{
		{
			name: answers, what: "gives a valid answer in time",
			run: func(ctx context.Context, c *check) { s.hookAnswers(ctx, c, h) },
		},
		{
			name: at + "/repeats", what: "the same question has the same answer", needs: []string{answers},
			run: func(ctx context.Context, c *check) { s.hookRepeats(ctx, c, h) },
		},
		{
			name: at + "/garbage", what: "survives invalid requests", needs: []string{answers}, ends: true,
			run: func(ctx context.Context, c *check) { s.hookGarbage(ctx, c, h) },
		},
	}
}

// envelope completes an example of the contract.
func (s *suite) envelope(e hook.Envelope, h plugin.Hook) hook.Envelope {
	e.InvocationID = fmt.Sprintf("conformance/%d/%s//%s", s.id(), h.Point, s.name())
	e.Plugin, e.Agent = s.name(), "main"
	if e.Session != "" {
		e.Session = "conformance"
	}
	return e
}

// askHook asks at a point; the deadline in the envelope is the hook's own, from now.
func (s *suite) askHook(ctx context.Context, e hook.Envelope, h plugin.Hook) answer {
	e.Deadline = time.Now().Add(hookDeadline(h)).UTC()
	return s.ask(ctx, subject.Hook(string(h.Point), s.name()), mustJSON(e), hookDeadline(h))
}

func (s *suite) hookAnswers(ctx context.Context, c *check, h plugin.Hook) {
	list, err := s.contract.questions(h.Point)
	if err != nil {
		c.fail("an example of the question", err.Error(), "this is a fault of the suite")
		return
	}
	examples := len(list)
	for _, own := range s.Cases {
		if own.Point == h.Point {
			e := list[0]
			e.Data, e.Step = own.Data, cmp.Or(own.Step, e.Step)
			list = append(list, e)
		}
	}
	for i, e := range list {
		e = s.envelope(e, h)
		a := s.askHook(ctx, e, h)
		if !s.answered(c, subject.Hook(string(h.Point), s.name()), a, hookDeadline(h)) {
			return // the next would have to wait as long
		}
		if i >= examples {
			c.note(fmt.Sprintf("your case %s: it answers %s", quote(e.Data), quote(a.body)))
		}
		s.judgeHook(c, e, a)
	}
}

// judgeHook checks an answer against the schema, and applies it as core does.
func (s *suite) judgeHook(c *check, e hook.Envelope, a answer) {
	asked := fmt.Sprintf("%s, asked with %s", quote(a.body), quote(e.Data))
	if len(bytes.TrimSpace(a.body)) > 0 {
		for _, p := range s.contract.problems("hooks/reply.json", a.body) {
			c.fail("an empty answer, or one by schemas/hooks/reply.json", asked+": "+p,
				"core treats this as garbage, and on_error applies")
		}
	}
	if !c.ok() {
		return
	}
	fold := hook.NewFold(e.Point, e.Step, e.Data)
	for _, f := range fold.Add(hook.Answer{Plugin: s.name(), Body: a.body, OnError: hook.Allow, Latency: a.took}) {
		c.fail("an answer that is valid at "+string(e.Point), asked+": "+f.Err.Error(),
			"see schemas/hooks/"+string(e.Point)+
				".json and the table in schemas/hooks/reply.json; core treats this as garbage, and on_error applies")
	}
	d := fold.Decision()
	if d.Verb != hook.Replace && (d.Verb != hook.Confirm || d.Data == nil) {
		return
	}
	for _, p := range s.contract.problems("hooks/"+string(e.Point)+".json", d.Data) {
		c.fail("a replacement by schemas/hooks/"+string(e.Point)+".json", asked+": "+p,
			"send the whole payload back, with your changes")
	}
}

func (s *suite) hookRepeats(ctx context.Context, c *check, h plugin.Hook) {
	list, err := s.contract.questions(h.Point)
	if err != nil {
		c.fail("an example of the question", err.Error(), "this is a fault of the suite")
		return
	}
	e := s.envelope(list[0], h)
	var first answer
	for i := range 3 {
		a := s.askHook(ctx, e, h)
		if !s.answered(c, subject.Hook(string(h.Point), s.name()), a, hookDeadline(h)) {
			return
		}
		if i == 0 {
			first = a
			continue
		}
		if !sameJSON(first.body, a.body) {
			c.fail("the same answer each time to the invocation "+e.InvocationID,
				fmt.Sprintf("first %s, then %s", quote(first.body), quote(a.body)),
				"core may ask again when an answer was lost: keep the reply under invocation_id and data, and send it again")
			return
		}
	}
}

// garbage returns invalid questions for the point.
func (s *suite) garbage(h plugin.Hook) [][]byte {
	e := hook.Envelope{
		Point: h.Point, Plugin: s.name(), Agent: "main", Session: "conformance", Deadline: time.Now().Add(time.Minute).UTC(),
	}
	with := func(data string) []byte {
		e.InvocationID, e.Data = fmt.Sprintf("conformance/garbage/%d", s.id()), []byte(data)
		return mustJSON(e)
	}
	return [][]byte{
		{},
		[]byte("no JSON at all"), []byte("{"), []byte("null"), []byte("[]"), []byte("{}"), []byte(`"text"`),
		{0xff, 0xfe, 0x00},
		with("null"), with("{}"), with(`"text"`), with("[1,2]"), with(`{"unknown":{"a":[1,2,3]}}`),
		with(`{"text":1,"tool":2,"args":"x","perceptions":{},"tools":7,"response":[],"result":null,"input":[],"message":{}}`),
		with(`{"text":"` + string(bytes.Repeat([]byte("a"), 300_000)) + `"}`),
		[]byte(`{"invocation_id":7,"point":["` + string(h.Point) + `"],"data":{}}`),
		bytes.Repeat([]byte("["), 5000),
	}
}

func (s *suite) hookGarbage(ctx context.Context, c *check, h plugin.Hook) {
	subj := subject.Hook(string(h.Point), s.name())
	s.throw(ctx, c, subj, s.garbage(h), func(ctx context.Context) answer {
		list, err := s.contract.questions(h.Point)
		if err != nil {
			return answer{err: err}
		}
		return s.askHook(ctx, s.envelope(list[0], h), h)
	}, hookDeadline(h))
}

// patience is the time limit for a plugin to recover from garbage, which some
// answer by reconnecting.
const patience = 10 * time.Second

// linger is how long a process is watched after it received garbage.
const linger = 300 * time.Millisecond

// throw sends invalid questions, and then a valid one. If the process ends, it
// is asked one at a time, so that every case that ends it is in the report.
func (s *suite) throw(
	ctx context.Context, c *check, subj string, garbage [][]byte, valid func(context.Context) answer, limit time.Duration,
) {
	all := &check{}
	s.throwAll(ctx, all, subj, garbage, valid, limit)
	if _, over := s.first.ended(); over {
		for _, body := range garbage {
			if s.reviveReported(ctx); s.aborted != "" || ctx.Err() != nil {
				break
			}
			one := &check{}
			s.throwAll(ctx, one, subj, [][]byte{body}, valid, limit)
			for _, f := range one.findings {
				f.Seen = "after " + quote(body) + ": " + f.Seen
				c.findings = append(c.findings, f)
			}
		}
		s.reviveReported(ctx)
	}
	if c.ok() { // no single case made it end
		c.findings = all.findings
	}
}

// reviveReported is revive after an end that was already reported.
func (s *suite) reviveReported(ctx context.Context) {
	if _, over := s.first.ended(); over {
		s.first.reported = true
		s.revive(ctx)
	}
}

func (s *suite) throwAll(
	ctx context.Context, c *check, subj string, garbage [][]byte, valid func(context.Context) answer, limit time.Duration,
) {
	for _, body := range garbage {
		forget, err := s.caller.SendWhole(ctx, subj, string(s.name()), nil, body, nothing)
		if err != nil {
			c.fail("the bus accepts the question", err.Error(), "this is a fault of the suite")
			return
		}
		defer forget()
	}
	const advice = "answer garbage with an error reply (header Skandha-Error: invalid_argument, " +
		"see schemas/error.json), or not at all, and continue"
	over := func() bool {
		how, over := s.first.ended()
		if over {
			c.fail("it continues after invalid questions", "the process ended: "+how+lastWords(s.out), advice)
		}
		return over
	}
	var a answer
	for end := time.Now().Add(patience); ; pause(ctx, 100*time.Millisecond) {
		a = valid(ctx)
		if over() {
			return
		}
		if a.came && a.err == nil || time.Now().After(end) || ctx.Err() != nil {
			break
		}
	}
	select { // it may not end at once
	case <-s.first.gone:
		over()
		return
	case <-time.After(linger):
	}
	if a.came && a.err == nil { // a plugin that handles requests concurrently may only now have handled the garbage
		if a = valid(ctx); over() {
			return
		}
	}
	if a.err != nil || !a.came {
		c.fail(fmt.Sprintf("after invalid questions, an answer to a valid one within %s", seconds(patience)),
			fmt.Sprintf("none on %s (%s)", subj, seconds(limit)), advice)
	}
}

func pause(ctx context.Context, d time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	<-ctx.Done()
}
