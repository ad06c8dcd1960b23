package e2etest

import (
	"encoding/json"
	"fmt"
	"strings"

	"skandha.dev/pkg/provider"
)

// Script is the text of an input: it tells the model of this package what to
// answer in each round, and [Bot] what the person does. It is the same whichever process
// reads it, so model calls are idempotent, as the protocol has it.
type Script struct {
	Tag     string    `json:"tag,omitempty"`
	Rounds  []Round   `json:"rounds,omitempty"`   // calls of each answer; after the last the model answers with text
	ThinkMS int       `json:"think_ms,omitempty"` // each model call
	Then    Misdeed   `json:"then,omitempty"`     // instead of the final answer
	Person  []Conduct `json:"person,omitempty"`   // one for each confirmation request, the last for all that follow
}

// Call is a tool call that the model asks for.
type Call struct {
	ID        string   `json:"id"`
	Tool      string   `json:"tool"`
	Args      any      `json:"args,omitempty"`
	DependsOn []string `json:"depends_on,omitempty"`
}

// Misdeed is what a model does instead of answering.
type Misdeed string

// The misdeeds.
const (
	Hang     Misdeed = "hang"    // never answers, and does not heed that it is stopped
	Garbage  Misdeed = "garbage" // answers with nothing
	Loop     Misdeed = "loop"    // asks for a tool for ever
	Unknown  Misdeed = "unknown" // asks for a tool that does not exist, for ever
	Fault    Misdeed = "fault"   // fails, and says that it may be asked again
	Panic    Misdeed = "panic"
	Flood    Misdeed = "flood"    // asks for twenty thousand calls at once
	Prolix   Misdeed = "prolix"   // answers with 12 MiB of text
	Baroque  Misdeed = "baroque"  // asks for a tool whose name has 5 MiB, with arguments of 5 MiB
	Stateful Misdeed = "stateful" // hands back 12 MiB of provider state
)

// Conduct is what a person does.
type Conduct string

// The conducts.
const (
	Approve Conduct = "approve"
	Twice   Conduct = "twice"  // approves, and approves again
	Deny    Conduct = "deny"   //
	Ignore  Conduct = "ignore" // lets it expire
	Forge   Conduct = "forge"  // approves other arguments, an earlier request and another session's, then denies
	Cancel  Conduct = "cancel" // the turn, once a call was given to a runner
)

// Text is the script as an input's text.
func (s Script) Text() string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(fmt.Sprintf("e2etest: encoding a script: %v", err))
	}
	return string(b)
}

// ReadScript reads an input's text; what is no script is the empty one.
func ReadScript(text string) Script {
	var s Script
	if strings.HasPrefix(text, "{") && json.Unmarshal([]byte(text), &s) != nil {
		return Script{}
	}
	return s
}

// answer is what the model says, given the conversation.
func answer(r provider.Request) (provider.Response, Script, error) {
	said, err := r.Conversation()
	if err != nil {
		return provider.Response{}, Script{}, err
	}
	var text string
	round := 0
	for _, m := range said {
		switch m.Role {
		case provider.RoleUser:
			text, round = m.Text, 0
		case provider.RoleAssistant:
			if len(m.ToolCalls) > 0 {
				round++
			}
		}
	}
	s := ReadScript(text)
	if round < len(s.Rounds) {
		return provider.Response{ToolCalls: s.Rounds[round].calls()}, s, nil
	}
	switch s.Then {
	case Garbage:
		return provider.Response{}, s, nil
	case Loop:
		return provider.Response{ToolCalls: round1(Call{ID: "again", Tool: ToolAgain})}, s, nil
	case Unknown:
		return provider.Response{ToolCalls: round1(Call{ID: "none", Tool: "e2e:none"})}, s, nil
	}
	if res, is := excess(s.Then); is && round == len(s.Rounds) {
		return res, s, nil
	}
	return provider.Response{
		TextContent: fmt.Sprintf("done after %d rounds", round), Usage: provider.Usage{InputTokens: 1, OutputTokens: 1},
	}, s, nil
}

// Round is the calls of one answer.
type Round []Call

func (r Round) calls() []provider.ToolCall {
	out := make([]provider.ToolCall, len(r))
	for i, c := range r {
		args, err := json.Marshal(c.Args)
		if err != nil || c.Args == nil {
			args = json.RawMessage(`{}`)
		}
		out[i] = provider.ToolCall{ID: c.ID, Tool: c.Tool, Args: args, DependsOn: c.DependsOn}
	}
	return out
}

// excess is an answer that is too much.
func excess(m Misdeed) (provider.Response, bool) {
	var r provider.Response
	switch m {
	case Flood:
		for i := range 20_000 {
			r.ToolCalls = append(r.ToolCalls,
				provider.ToolCall{ID: fmt.Sprint(i), Tool: ToolOnce, Args: json.RawMessage(`{"n":1}`)})
		}
	case Prolix:
		r.TextContent = strings.Repeat("and ", 3<<20)
	case Baroque:
		long := strings.Repeat("x", 5<<20)
		r.ToolCalls = round1(Call{ID: long[:1<<20], Tool: long, Args: map[string]string{"n": long}})
	case Stateful:
		r.TextContent, r.ProviderState = "done", json.RawMessage(`"`+strings.Repeat("s", 12<<20)+`"`)
	default:
		return r, false
	}
	return r, true
}

func round1(c Call) []provider.ToolCall { return Round{c}.calls() }
