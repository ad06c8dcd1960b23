package subagents

import (
	"encoding/json"
	"fmt"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/core/runner"
	"skandha.dev/services/internal/executor"
)

// Pool is the pool of the calls that wait for other sessions.
const Pool = "agents"

// slots is how many calls of one core wait at once. They do little, and must not hold up those that
// their own sub-agents make.
const slots = 1024

// Slots returns the pool of the tools.
func Slots() executor.Pool { return executor.Pool{Name: Pool, Slots: slots} }

const (
	delegateWithin = time.Hour
	waitAtMost     = 10 * time.Minute
	margin         = 3 * time.Second // before the end of a call's time, in which its result is given
	soon           = 15 * time.Second
)

// maxTaskBytes bounds a task or a message.
const maxTaskBytes = 64 << 10

// Tools returns the tools. Each is idempotent: a call that may have run is made again.
func (s *Subagents) Tools() []runner.Tool {
	text := func(what string) string {
		return fmt.Sprintf(`{"type":"string","minLength":1,"maxLength":%d,"description":"%s"}`, maxTaskBytes, what)
	}
	spec := func(name, description, args string, within time.Duration) tool.Spec {
		return tool.Spec{
			Name: name, Description: description, Args: json.RawMessage(args), Idempotent: true, Risk: tool.RiskLow, Pool: Pool,
			TimeoutMS: within.Milliseconds(),
		}
	}
	return []runner.Tool{
		{Spec: spec(executor.Delegate, "Gives a task to another agent, which works on it in a separate session and sees nothing "+
			"of this one. Write all that it needs. The result is its answer. Several calls at once run side by side.",
			`{"type":"object","properties":{
				"task":`+text("what is to be done, and what the answer must contain")+`,
				"agent":{"type":"string","maxLength":64,"description":"who does it; default: the first of the team"},
				"tools":{"type":"array","maxItems":64,"items":{"type":"string","minLength":1,"maxLength":128},
					"description":"the only tools that it may call, such as web:fetch or file_system:*; default: all that you may"},
				"share":{"type":"number","exclusiveMinimum":0,"maximum":1,
					"description":"how much it may spend of what is left to you; default: equal shares"},
				"wait":{"type":"boolean","default":true,"description":"false: go on at once, and call agent:wait later"}},
				"required":["task"],"additionalProperties":false}`, delegateWithin), Run: s.delegate},
		{Spec: spec(executor.SendAgent, "Sends a message to an agent that works for you, or to the one that you work for. It reads it "+
			"before its next step, or begins to work on it if it was done.",
			`{"type":"object","properties":{
				"session":{"type":"string","minLength":1,"maxLength":64,"description":"as agent:delegate returned it; or parent"},
				"text":`+text("the message")+`},
				"required":["session","text"],"additionalProperties":false}`, soon), Run: s.send},
		{Spec: spec(executor.WaitAgents, "Waits until agents that work for you are done, and returns what each has answered or does now.",
			fmt.Sprintf(`{"type":"object","properties":{
				"sessions":{"type":"array","maxItems":64,"items":{"type":"string","minLength":1,"maxLength":64},
					"description":"as agent:delegate returned them; default: all"},
				"seconds":{"type":"integer","minimum":0,"maximum":%d,"default":60,"description":"how long at most"}},
				"additionalProperties":false}`, int(waitAtMost.Seconds())), waitAtMost+2*margin), Run: s.wait},
		{Spec: spec(executor.StopAgent, "Stops what an agent does that works for you.",
			`{"type":"object","properties":{"session":{"type":"string","minLength":1,"maxLength":64}},
				"required":["session"],"additionalProperties":false}`, soon), Run: s.stop},
	}
}

// status is what a sub-agent does.
type status string

// The statuses.
const (
	done    status = "done"
	failed  status = "failed"
	running status = "running"
	asking  status = "waits for a person"
)

// report is what the caller's model reads about one sub-agent.
type report struct {
	Session subject.Session `json:"session"`
	Agent   subject.Agent   `json:"agent"`
	Status  status          `json:"status"`
	Answer  string          `json:"answer,omitempty"`
	Code    event.FailCode  `json:"code,omitempty"` // with failed
	Reason  string          `json:"reason,omitempty"`
	Waits   []string        `json:"waits,omitempty"` // the calls that a person is asked about
	// Artifacts are copies of the files that it has made.
	Artifacts []artifact `json:"artifacts,omitempty"`
	LeftOut   []string   `json:"artifacts_left_out,omitempty"` // and why
}
