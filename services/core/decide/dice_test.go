package decide_test

import (
	"encoding/json"
	"fmt"
	"strings"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/core/decide"
)

// perceive stores a message from outside.
func (s *simulation) perceive() {
	if s.state.Locked != "" && chance(s.r, 3) {
		s.put(subject.Command, event.Command{Name: oneOf(s.r, "reset", "undelete")})
	}
	if s.state.Paused != nil && chance(s.r, 2) {
		s.put(subject.Command, event.Command{Name: "resume"})
	}
	if chance(s.r, 8) {
		if d := decide.OnRetention(s.state, s.env()); d != nil {
			s.commit(d, 0)
		}
	}
	switch s.r.IntN(24) {
	case 0, 1, 2, 3, 4:
		s.put(subject.Input, event.Input{Text: s.text(), ID: oneOf(s.r, "", "", fmt.Sprint("i", s.r.IntN(20)))})
	case 5:
		s.put(subject.Input,
			event.Input{Text: "now!", Mode: event.ModeInterrupt, ID: oneOf(s.r, "", fmt.Sprint("i", s.r.IntN(20)))})
	case 6:
		s.putRaw(subject.Input,
			oneOf(s.r, ``, `[]`, `{"text":""}`, `{"text":7}`, `{"text":"x","mode":"sideways"}`, "{\"text\":\"\xff\"}",
				`nonsense`,
				`{"specversion":"1.0"}`, `{"text":"x","id":"`+strings.Repeat("i", 200)+`"}`))
	case 7:
		s.put(subject.Cancel, event.Cancel{Sequence: s.someInput(), Reason: oneOf(s.r, "", "enough")})
	case 9:
		s.put(subject.Cancel, event.Cancel{InputID: fmt.Sprint("i", s.r.IntN(20))})
	case 10:
		s.put(subject.Command,
			event.Command{
				Name: oneOf(s.r, "help", "/reset", "cancel", "tools", "provider", "metrics", "plugins", "replay", "quit", "sudo", "delete",
					"undelete", "pause", "pause", "resume"),
				Args: oneOf(s.r, nil, []string{"1"}), ID: oneOf(s.r, "", "k1"),
			})
	case 11:
		s.putRaw(oneOf(s.r, subject.Confirmation, subject.Timer, subject.Cancel, subject.Command, "gossip"),
			oneOf(s.r, `{}`, `{"id":`, `[]`, ``))
	case 8, 12, 13, 14:
		s.put(subject.Input, event.Input{Text: "another", Source: "sim", Mode: oneOf(s.r, "", event.ModeSteer)})
	default:
		s.confirmSomething()
	}
}

// someInput picks an input, mostly the open one.
func (s *simulation) someInput() uint64 {
	if t := s.state.Turn; t != nil && !chance(s.r, 4) {
		return t.Sequence
	}
	return uint64(s.r.IntN(int(s.seq) + 2))
}

// confirmSomething answers a request that is, was, or never will be pending.
func (s *simulation) confirmSomething() {
	c := event.Confirmation{ConfirmationID: "t1-p1-c0", Hash: "00", Approved: true}
	pending := s.state.Confirmations()
	if len(pending) > 0 && !chance(s.r, 5) {
		st := oneOf(s.r, pending...)
		c.ConfirmationID, c.Hash = st.Call, st.Hash
	} else if n := len(s.seen.order); n > 0 {
		call := s.seen.calls[s.seen.order[s.r.IntN(n)]]
		c.ConfirmationID = call.Call
		if call.asked != nil {
			c.Hash = call.asked.Hash
		}
	}
	if chance(s.r, 6) {
		c.Hash += "0"
	}
	if chance(s.r, 10) { // a writer other than core sends a timer
		s.next = append(s.next, s.cause(subject.Timer, "web", string(mustJSON(event.Timer{ID: c.ConfirmationID}))))
	}
	c.Approved = !chance(s.r, 4)
	c.Always = s.grantOf(pending, c.ConfirmationID)
	s.put(subject.Confirmation, c)
	if chance(s.r, 6) {
		s.put(subject.Confirmation, c)
	}
}

// grantOf returns what an answer grants for the session: often nothing, mostly an
// offered grant, sometimes more.
func (s *simulation) grantOf(pending []decide.Step, call string) *event.Grant {
	for _, st := range pending {
		if st.Call == call && len(st.Always) > 0 && chance(s.r, 2) {
			g := oneOf(s.r, st.Always...)
			if chance(s.r, 6) {
				g = event.Grant{Tool: g.Tool, Args: map[string]string{"to": "*"}}
			}
			return &g
		}
	}
	return nil
}

func (s *simulation) text() string {
	return oneOf(s.r, "hello", "reads path=a", "writes", "reads path=a, then writes text=b", "<script>&amp;\u2028", "日本語 \U0001F600", strings.Repeat("long ", 400), "\x00\t")
}

// response returns a random answer of a model.
func (s *simulation) response() provider.Response {
	r := provider.Response{
		Usage: provider.Usage{
			InputTokens: int64(s.r.IntN(200)), OutputTokens: int64(s.r.IntN(50)), CostMicroUSD: int64(s.r.IntN(60)),
		},
		Model: "dice", StopReason: provider.StopEnd, IsFinal: chance(s.r, 2),
	}
	if chance(s.r, 3) {
		r.ProviderState = json.RawMessage(`{"sig": "<abc>", "n": [1 , 2]}`)
	}
	if t := s.state.Turn; t != nil && t.Plan != nil && t.Plan.Question != nil &&
		t.Plan.Question.Purpose == event.PurposeDecision {
		r.TextContent = s.choice()
		return r
	}
	switch s.r.IntN(12) {
	case 0, 1:
		r.TextContent = s.text()
		return r
	case 2: // neither text nor calls
		r.TextContent = oneOf(s.r, "", " \n")
		return r
	case 3, 4, 5:
		r.ToolCalls = []provider.ToolCall{s.planCall()}
	}
	if chance(s.r, 3) {
		r.TextContent = "let me see"
	}
	for range 1 + s.r.IntN(4) {
		r.ToolCalls = append(r.ToolCalls, s.toolCall(len(r.ToolCalls)))
	}
	return r
}

// choice returns a random answer to the question of the decision engine.
func (s *simulation) choice() string {
	name, args := s.toolAndArgs(0, "c")
	step := fmt.Sprintf(`{"tool":%q,"parameters":%s}`, name, args)
	return oneOf(s.r, s.text(), `{"steps":[],"confidence":1}`, `{"steps":[],"confidence":0,"ask":"which one?"}`,
		`{"steps":[`+step+`],"confidence":1}`, "```json\n{\"steps\":["+step+"],\"confidence\":0.9}\n```",
		`{"steps":[`+step+`],"confidence":0.1}`,
		`{"steps":[`+step+`,{"tool":"read","parameters":{"path":"${1.text}"}}],"confidence":1}`)
}

func (s *simulation) toolCall(n int) provider.ToolCall {
	c := provider.ToolCall{ID: fmt.Sprintf("c%d", n)}
	c.Tool, c.Args = s.toolAndArgs(n, "c")
	if n > 0 && chance(s.r, 4) {
		c.DependsOn = []string{fmt.Sprintf("c%d", s.r.IntN(n))}
	}
	switch s.r.IntN(4 * s.strange) {
	case 0:
		c.ID = oneOf(s.r, "", "c0", "call_1")
	case 1:
		c.DependsOn = []string{oneOf(s.r, c.ID, "c9", "nobody")}
	case 2:
		c.Args = oneOf(s.r, nil, json.RawMessage(`"not json {"`), json.RawMessage(`null`),
			json.RawMessage("{\"path\":\"\xff\"}"))
	}
	return c
}

// toolAndArgs returns the tool and arguments of a call or step. With n > 0, others
// precede it.
func (s *simulation) toolAndArgs(n int, prefix string) (string, json.RawMessage) {
	name := oneOf(s.r, "read", "write", "mail:send", "keep")
	if s.matcher != nil && prefix == "c" && chance(s.r, 8) {
		return "tools:find", mustJSON(map[string]any{"query": oneOf(s.r, "reads", "writes", " ", "nothing of that")})
	}
	if chance(s.r, s.strange) {
		name = oneOf(s.r, "forbidden", "internal", "nonsense:tool")
	}
	ref := "${HOME}"
	if n > 0 && chance(s.r, 2) {
		ref = fmt.Sprintf("${%s%d%s}", prefix, s.r.IntN(n),
			oneOf(s.r, "", ".text", ".list.0.n", ".n", oneOf(s.r, "", ".nowhere", ".list.7")))
	}
	if prefix == "s" && chance(s.r, 20) {
		ref = "${c1.text}" // of a call outside the plan
	}
	args := map[string]any{}
	switch name {
	case "read":
		args["path"] = oneOf(s.r, "a", "<&>", "d/a", "d/b", "d/../a", ref, "x "+ref)
		if chance(s.r, 5) {
			args["list"] = []any{ref, 1.5, map[string]any{"deep": ref}}
		}
	case "write":
		args["text"] = oneOf(s.r, "b", "</b>", "t: "+ref)
		if chance(s.r, 3) {
			args["n"] = ref
		}
	case "mail:send":
		args["to"] = oneOf(s.r, "you@example.org", "<you> & me", "to "+ref)
	}
	if chance(s.r, 2*s.strange) {
		args["bogus"] = true
	}
	return name, mustJSON(args)
}

// planCall returns a call with a whole plan, mostly valid, sometimes impossible.
func (s *simulation) planCall() provider.ToolCall {
	type step struct {
		ID        any             `json:"id,omitempty"`
		Tool      string          `json:"tool"`
		Params    json.RawMessage `json:"params,omitempty"`
		DependsOn []any           `json:"depends_on,omitempty"`
	}
	var steps []step
	for i := range min(s.r.IntN(30), 1+s.r.IntN(5)) {
		st := step{ID: fmt.Sprintf("s%d", i)}
		st.Tool, st.Params = s.toolAndArgs(i, "s")
		if i > 0 && chance(s.r, 3) {
			st.DependsOn = []any{fmt.Sprintf("s%d", s.r.IntN(i))}
		}
		switch s.r.IntN(4 * s.strange) {
		case 0:
			st.DependsOn = []any{fmt.Sprintf("s%d", i)} // itself
		case 1:
			st.DependsOn = []any{"s9"} // unknown, or later: a cycle
		case 2:
			st.DependsOn = []any{fmt.Sprintf("s%d", i+1)}
		case 3:
			st.ID = i // a number
		case 4:
			st.Tool = "plan:execute"
		}
		steps = append(steps, st)
	}
	args := mustJSON(map[string]any{"steps": steps, "stop_on_failure": chance(s.r, 3)})
	if chance(s.r, s.strange) {
		args = json.RawMessage(oneOf(s.r, `{"steps":7}`, `{}`, `"steps"`, `null`))
	}
	return provider.ToolCall{ID: "c0", Tool: "plan:execute", Args: args}
}

// hook answers a hook point with a random verb and random data.
func (s *simulation) hook(e hook.Envelope) hook.Decision {
	d := hook.Decision{Verb: hook.Continue}
	if !s.unruly || !chance(s.r, 4) {
		return d
	}
	d.Verb = oneOf(s.r, hook.Replace, hook.Replace, hook.Replace, hook.Stop, hook.DenyVerb, hook.Confirm, hook.AnswerFor,
		"shrug", "")
	d.Reason = "the hook's mood"
	d.Data = oneOf(s.r, nil, json.RawMessage(`{`), json.RawMessage(`[]`), json.RawMessage(`{}`), json.RawMessage(`7`),
		e.Data, s.replacement(e), s.replacement(e), s.replacement(e), s.replacement(e))
	if d.Verb == hook.AnswerFor {
		d.Data, d.Answer, d.AnsweredBy = nil, d.Data, "plug"
	}
	if d.Verb == hook.Confirm && chance(s.r, 2) {
		d.Warning = &hook.Warning{Level: hook.LevelWarn, Message: "sure?"}
	}
	return d
}

// judge answers the judges' question at random.
func (s *simulation) judge(e hook.Envelope, _ hook.Decision) hook.Decision {
	d := hook.Decision{Verb: hook.Continue}
	if s.unruly && chance(s.r, 6) {
		d.Verb, d.Reason = oneOf(s.r, hook.DenyVerb, hook.Confirm, hook.Replace, "shrug"), "the judge's mood"
	}
	var call hook.ActData
	if err := json.Unmarshal(e.Data, &call); err != nil {
		panic(err)
	}
	s.seen.judged[judgement{e.Step, string(call.Args)}] = d.Verb
	return d
}

// replacement returns data with which a hook tries to break the rules.
func (s *simulation) replacement(e hook.Envelope) json.RawMessage {
	switch e.Point {
	case hook.BeforeSense:
		return json.RawMessage(`{"text":"other words"}`)
	case hook.AfterSense:
		var p hook.PerceptionsData
		if json.Unmarshal(e.Data, &p) == nil && len(p.Perceptions) > 0 {
			p.Perceptions[0].Drop = chance(s.r, 3)
			p.Perceptions[0].Annotations = []string{"note", "<&>"}
		}
		return mustJSON(p)
	case hook.BeforePlan:
		return mustJSON(hook.PlanData{
			System: "be brief", Tools: []string{"read", "internal", "forbidden", "write"}, Advice: []string{"think"},
		})
	case hook.AfterPlan:
		return mustJSON(hook.AfterPlanData{Response: s.response()})
	case hook.BeforeAct:
		return mustJSON(hook.ActData{
			Tool: "internal",
			Args: json.RawMessage(oneOf(s.r, `{"path":"hooked"}`, `{"text":"hooked <b>"}`, `{"to":"hooked"}`, `{"zzz":1}`)),
		})
	case hook.AfterAct:
		return mustJSON(hook.AfterActData{
			Result: oneOf(s.r, tool.OK("all is well"), tool.Failure(tool.CodeCancelled, "it never ran"),
				tool.Failure(tool.CodeFailed, "no"), tool.Result{}),
		})
	case hook.BeforeReflect:
		return mustJSON(hook.ReflectData{Notes: []string{"remember"}})
	}
	return json.RawMessage(`null`)
}
