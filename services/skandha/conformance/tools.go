package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
)

func (s *suite) toolSteps(index int, t tool.Spec) []step {
	at := "tool/" + t.Name
	answers := at + "/answers"
	calls, skip := s.calls(t)
	return []step{
		{
			name: answers, what: "gives a valid result for valid arguments in time", skip: skip,
			run: func(ctx context.Context, c *check) { s.toolAnswers(ctx, c, index, t, calls) },
		},
		{
			name: at + "/repeats", what: "the same call and attempt has the same result", needs: []string{answers}, skip: skip,
			run: func(ctx context.Context, c *check) { s.toolRepeats(ctx, c, t, calls) },
		},
		{
			name: at + "/remembers", what: "asked again after a lost connection, it has the same result (recommended)",
			needs: []string{answers}, skip: skip,
			run: func(ctx context.Context, c *check) { s.toolRemembers(ctx, c, t, calls) },
		},
		{
			name: at + "/garbage", what: "survives invalid calls", needs: []string{answers}, ends: true, skip: skip,
			run: func(ctx context.Context, c *check) { s.toolGarbage(ctx, c, t, calls) },
		},
	}
}

// calls returns the arguments to try a tool with, or why it is not tried.
func (s *suite) calls(t tool.Spec) (calls []json.RawMessage, skip string) {
	if s.NoTools {
		return nil, "tools are not called, as asked"
	}
	made, err := samples(t)
	calls = append(slices.Clone(s.Calls[t.Name]), made...)
	if len(calls) == 0 {
		return nil, fmt.Sprintf("no arguments could be made from its schema (%v); give some: --call '%s={…}'", err, t.Name)
	}
	return calls, ""
}

func (s *suite) call(t tool.Spec, args json.RawMessage) tool.Call {
	n := s.id()
	return tool.Call{
		Call: fmt.Sprintf("t%d-p1-c0", n), Attempt: fmt.Sprintf("conformance-%d", n), Agent: "main", Session: "conformance",
		Turn: fmt.Sprintf("t%d", n), Tool: t.Name, Args: args,
	}
}

func (s *suite) askTool(ctx context.Context, t tool.Spec, call tool.Call) answer {
	call.Deadline = time.Now().Add(t.Timeout()).UTC()
	return s.ask(ctx, subject.Tool(s.name(), t.Name), mustJSON(call), t.Timeout())
}

func (s *suite) toolAnswers(ctx context.Context, c *check, index int, t tool.Spec, calls []json.RawMessage) {
	for i, args := range calls {
		a := s.askTool(ctx, t, s.call(t, args))
		if !s.answered(c, subject.Tool(s.name(), t.Name), a, t.Timeout()) {
			return
		}
		asked := fmt.Sprintf("%s, called with %s", quote(a.body), quote(args))
		for _, p := range s.contract.problems("tool/answer.json", a.body) {
			c.fail("a result by schemas/tool/answer.json", asked+": "+p,
				`answer {"success": true, "data": …}, or {"success": false, "error": {"code": "tool_failed", "message": "…"}}`)
		}
		if !c.ok() {
			return
		}
		var r tool.Result
		if json.Unmarshal(a.body, &r) == nil && !r.Success && r.Error != nil {
			s.judgeFailure(c, index, t, r.Error, args, i < len(s.Calls[t.Name]))
		}
	}
}

// judgeFailure looks at a failure that is valid: which it may be, of arguments that
// were made up.
func (s *suite) judgeFailure(c *check, index int, t tool.Spec, e *tool.Error, args json.RawMessage, given bool) {
	switch e.Code {
	case tool.CodeFailed, tool.CodeTimeout, tool.CodeInternal, tool.CodeTooLarge:
	case tool.CodeInvalidArgs:
		if given {
			break
		}
		c.note(fmt.Sprintf("%s match tools[%d].args, but the tool answers %s: the schema could be stricter", quote(args),
			index, e))
		return
	default:
		c.fail("a code that a tool may use: tool_failed, invalid_arguments, timeout, internal or result_too_large",
			string(e.Code)+" of "+t.Name,
			"the others are reserved for core; use tool_failed, and put the rest in the message")
		return
	}
	note := fmt.Sprintf("called with %s, it fails: %s", quote(args), e)
	if !given {
		note += fmt.Sprintf("; the arguments are made up, give real ones by --call '%s={…}'", t.Name)
	}
	c.note(note)
}

func (s *suite) toolRepeats(ctx context.Context, c *check, t tool.Spec, calls []json.RawMessage) {
	call := s.call(t, calls[0])
	var first answer
	for i := range 2 {
		a := s.askTool(ctx, t, call)
		if !s.answered(c, subject.Tool(s.name(), t.Name), a, t.Timeout()) {
			return
		}
		if i == 0 {
			first = a
		} else if !sameJSON(first.body, a.body) {
			c.fail(fmt.Sprintf("one result of the call %s, attempt %s", call.Call, call.Attempt),
				fmt.Sprintf("first %s, then %s", quote(first.body), quote(a.body)),
				"a call may be asked again when an answer was lost: keep the result under call and attempt, send it again, "+
					"and do not run the tool twice")
		}
	}
}

// toolRemembers checks whether a result survives a lost connection. That is
// recommended, not required: a plugin may be a few lines that subscribe and publish.
// But a plugin that subscribes under its instance promises it.
func (s *suite) toolRemembers(ctx context.Context, c *check, t tool.Spec, calls []json.RawMessage) {
	own := subject.Replica(subject.Tool(s.name(), t.Name), instanceOf(s.first))
	promises := func(e passage) bool { return e.sent && e.verb == "SUB" && e.subject == own }
	if !slices.ContainsFunc(s.first.tap.all(), promises) {
		c.note(fmt.Sprintf("a result that is lost with a connection is not fetched, "+
			"and the call then lasts until its deadline: "+
			"remember results by call and attempt until the deadline, and subscribe to %s, too", own))
		return
	}
	call := s.call(t, calls[0])
	call.Deadline = time.Now().Add(s.Within + t.Timeout()).UTC()
	ask := func() answer { return s.ask(ctx, own, mustJSON(call), t.Timeout()) }
	first := ask()
	if !s.answered(c, own, first, t.Timeout()) {
		return
	}
	mark := s.first.tap.mark()
	s.first.tap.down()
	wait, cancel := context.WithTimeout(ctx, s.Within)
	defer cancel()
	if err := s.first.tap.up(wait); err != nil {
		c.fail("the bus comes back", err.Error(), "this is a fault of the suite")
		return
	}
	const advice = "when the connection ends, reconnect and subscribe again; " +
		"keep each result, by call and attempt, until the call's deadline"
	if _, ok := s.first.tap.await(wait, s.first.gone, mark, promises); !ok {
		c.fail("it subscribes to "+own+" again", "it did not within "+seconds(s.Within), advice)
		return
	}
	again := ask()
	for again.none && wait.Err() == nil { // it is reconnecting
		pause(wait, 50*time.Millisecond)
		again = ask()
	}
	if s.answered(c, own, again, t.Timeout()) && !sameJSON(first.body, again.body) {
		c.fail("the result that it gave before the connection was lost, "+quote(first.body),
			quote(again.body), advice)
	}
}

func (s *suite) toolGarbage(ctx context.Context, c *check, t tool.Spec, calls []json.RawMessage) {
	call := s.call(t, nil)
	call.Deadline = time.Now().Add(time.Minute).UTC()
	with := func(args string) []byte {
		b := string(mustJSON(call))
		return []byte(strings.Replace(b, `"args":null`, `"args":`+args, 1))
	}
	garbage := [][]byte{
		{},
		[]byte("no JSON at all"), []byte("{"), []byte("null"), []byte("[]"), []byte("{}"),
		{0xff, 0xfe, 0x00},
		with(`"text"`), with("[1]"), with("7"), []byte(`{"call":7,"attempt":[],"tool":{},"args":{}}`),
	}
	s.throw(ctx, c, subject.Tool(s.name(), t.Name), garbage, func(ctx context.Context) answer {
		return s.askTool(ctx, t, s.call(t, calls[0]))
	}, t.Timeout())
}
