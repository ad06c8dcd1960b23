package event

import (
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
)

// FromAgent says which session of an agent an input is from, and on whose behalf. Only core stores
// such inputs.
type FromAgent struct {
	subject.Ref        // the sender: agent and session
	Call        string `json:"call"` // the sender's call, which is also the id of the input
	// Writer, From and Source are of the input with which the work began, even if others have added to it:
	// policy judges the calls of all sessions that work on it by them.
	Writer subject.Writer `json:"writer"`
	From   string         `json:"from,omitempty"`
	Source string         `json:"source,omitempty"`
	// Stranger is where the answer of that input goes to, if it is not from a user.
	Stranger string `json:"stranger,omitempty"`
	// After lists the labels of the texts from outside that the sender had seen, at most [tool.MaxAfter].
	After []string `json:"after,omitempty"`
	// Hops is how many messages between agents have led to this one, itself included.
	Hops int `json:"hops"`
	// Terms are set in the first input of a session that works for another one.
	Terms *Terms `json:"terms,omitempty"`
}

// Terms bound what a session may do that works for another one. It can never do more than that one.
type Terms struct {
	Depth int `json:"depth"` // 1 if the other one works for no session
	// Deepest is the depth at which sessions give no tasks to others.
	Deepest int `json:"deepest"`
	// Agents are those above it, the nearest first: what is denied to one of them is denied here.
	Agents []subject.Agent `json:"agents"`
	// Only has lists of tools, or of beginnings of their names that end in "*"; each list must have a
	// tool that is to be called.
	Only [][]string `json:"only,omitempty"`
	// Budget is what the session may spend in all, the sessions that work for it included.
	Budget Budget `json:"budget,omitzero"`
}

// Budget bounds spending; 0 is no limit.
type Budget struct {
	Tokens       int64 `json:"tokens,omitempty"` // of input and output
	CostMicroUSD int64 `json:"cost_micro_usd,omitempty"`
}

// Commission is what a call may send: its arguments have the text.
type Commission struct {
	To subject.Ref `json:"to"` // the session that is to get it
	By FromAgent   `json:"by"`
}

// Task is an input that another session works on.
type Task struct {
	subject.Ref
	InputID string `json:"input_id"` // of [subject.AgentWriter]
}

// TaskReport is what became of the work of another session.
type TaskReport struct {
	subject.Ref
	Usage provider.Usage `json:"usage"` // of the session, in all
	Ended bool           `json:"ended,omitempty"`
}
