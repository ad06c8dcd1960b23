package anthropic

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"

	contract "skandha.dev/pkg/provider"
	"skandha.dev/services/provider/adapter"
	"skandha.dev/services/provider/httpapi"
)

// What replaces messages that the API wants, and the conversation lacks.
const (
	beforeFirst = "(The beginning of the conversation is omitted.)"
	afterLast   = "Continue."
	noResult    = "The call has no result."
)

const (
	user      = "user"
	assistant = "assistant"
)

// keeping is which thinking blocks are sent.
type keeping int

const (
	keepAll  keeping = iota
	keepOpen         // of the turn that is not answered yet
	keepNone
)

// conversation builds the messages. Those of the user and of the assistant alternate; the
// user's after calls begins with their results, one each.
type conversation struct {
	model    string
	keep     bool // thinking blocks are sent
	thoughts bool // there are some
	entries  []entry
	ids      map[string]bool // of all calls, on the wire
	called   []string        // the tools, on the wire
	open     []openCall
}

// entry is a message that is being built.
type entry struct {
	role    string
	results []any
	content []any
}

// openCall is a call of the latest answer that has no result yet.
type openCall struct{ id, wire string }

func newConversation(model string, talk []contract.Message, keep keeping) (*conversation, error) {
	c := &conversation{model: model, ids: map[string]bool{}}
	open := 0 // where the turn that is not answered begins
	for i, m := range talk {
		if m.Role == contract.RoleUser {
			open = i
		}
	}
	for i, m := range talk {
		c.keep = keep == keepAll || keep == keepOpen && i > open
		if err := c.add(m); err != nil {
			return nil, err
		}
	}
	return c, nil
}

func (c *conversation) add(m contract.Message) error {
	switch m.Role {
	case contract.RoleUser:
		text, files := composed(m)
		c.put(user, files...)
		c.put(user, textBlocks(text)...)
	case contract.RoleAssistant:
		c.answer(m)
	case contract.RoleTool:
		c.result(m)
	default:
		return adapter.Errorf(contract.ErrBadRequest, "messages: the role %q is unknown", m.Role)
	}
	return nil
}

// at returns the last entry, of that role.
func (c *conversation) at(role string) *entry {
	if n := len(c.entries); n == 0 || c.entries[n-1].role != role {
		c.entries = append(c.entries, entry{role: role})
	}
	return &c.entries[len(c.entries)-1]
}

func (c *conversation) put(role string, blocks ...any) {
	if len(blocks) > 0 {
		e := c.at(role)
		e.content = append(e.content, blocks...)
	}
}

func (c *conversation) answer(m contract.Message) {
	c.close()
	calls := make([]*block, len(m.ToolCalls))
	for i, call := range m.ToolCalls {
		calls[i] = &block{
			Type: typeToolUse, ID: c.wireID(call.ID), Name: httpapi.WireName(call.Tool), Input: httpapi.WireArgs(call.Args),
		}
		c.open = append(c.open, openCall{call.ID, calls[i].ID})
		c.called = append(c.called, calls[i].Name)
	}
	if s, own := stateOf(m, c.model); own && c.keep {
		c.thoughts = true
		c.put(assistant, s.restore(m.Text, calls)...)
		return
	}
	c.put(assistant, textBlocks(m.Text)...)
	for _, call := range calls {
		c.put(assistant, call)
	}
}

// wireID is what the API accepts as the id of a call.
var wireID = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)

// wireID returns the id of a call, or another one if the API would refuse it: ids of other
// providers may have any form, and repeat themselves.
func (c *conversation) wireID(id string) string {
	for n := len(c.ids); c.ids[id] || !wireID.MatchString(id); n++ {
		id = "call_" + strconv.Itoa(n)
	}
	c.ids[id] = true
	return id
}

func (c *conversation) result(m contract.Message) {
	text, files := composed(m)
	i := slices.IndexFunc(c.open, func(o openCall) bool { return o.id == m.CallID })
	if i < 0 {
		c.put(user, textBlocks(fmt.Sprintf("%s of %s: %s", outcome(m), cmp.Or(m.Tool, "a tool"), text))...)
		c.put(user, files...)
		return
	}
	if m.Failed { // the result of a failure may contain only text
		c.settle(i, textBlocks(text), true)
		c.put(user, files...)
		return
	}
	c.settle(i, append(textBlocks(text), files...), false)
}

func outcome(m contract.Message) string {
	if m.Failed {
		return "error"
	}
	return "output"
}

// settle adds the result of an open call.
func (c *conversation) settle(i int, content []any, failed bool) {
	e := c.at(user)
	e.results = append(e.results,
		&block{Type: "tool_result", ToolUseID: c.open[i].wire, Content: content, IsError: failed})
	c.open = slices.Delete(c.open, i, i+1)
}

// close gives every open call a result: the API refuses a call without one.
func (c *conversation) close() {
	for len(c.open) > 0 {
		c.settle(0, textBlocks(noResult), true)
	}
}

// finish returns the messages. The user has the first and the last one.
func (c *conversation) finish() []message {
	c.close()
	if n := len(c.entries); n > 0 && c.entries[n-1].role == assistant {
		c.put(user, textBlocks(afterLast)...)
	}
	if len(c.entries) > 0 && c.entries[0].role == assistant {
		c.entries = slices.Insert(c.entries, 0, entry{role: user, content: textBlocks(beforeFirst)})
	}
	out := make([]message, len(c.entries))
	for i, e := range c.entries {
		out[i] = message{e.role, slices.Concat(e.results, e.content)}
	}
	return out
}

// mayThink reports whether the API lets a model with a budget think: a tool loop must begin
// with a thought. Call it after finish.
func (c *conversation) mayThink() bool {
	i := len(c.entries) - 1
	for ; i >= 0 && len(c.entries[i].results) > 0; i -= 2 {
		// the loop began earlier
	}
	first := i + 1
	return first >= len(c.entries) || isKept(c.entries[first].content[0])
}
