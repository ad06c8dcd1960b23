package obedient

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	contract "skandha.dev/pkg/provider"
	"skandha.dev/services/provider/adapter"
	"skandha.dev/services/test/scripted"
)

// Model obeys. The zero value is ready to use.
type Model struct {
	mu    sync.Mutex
	cache map[string][]instruction // by the text that they are in
}

var _ adapter.Adapter = (*Model)(nil)

// Info implements adapter.Adapter.
func (m *Model) Info() contract.Info {
	return contract.Info{Name: "offline", Model: "obedient", Note: "obeys whatever it reads"}
}

// Generate implements adapter.Adapter.
func (m *Model) Generate(
	ctx context.Context, req contract.Request, delta func(text, reasoning string),
) (contract.Response, error) {
	if err := ctx.Err(); err != nil {
		return contract.Response{}, adapter.Failure(err)
	}
	messages, err := req.Conversation()
	if err != nil {
		return contract.Response{}, adapter.Errorf(contract.ErrBadRequest, "%v", err)
	}
	resp := contract.Response{Model: "obedient", StopReason: contract.StopToolCalls}
	if resp.ToolCalls = m.next(req, messages); len(resp.ToolCalls) > 0 {
		return resp, nil
	}
	resp.IsFinal, resp.StopReason, resp.TextContent = true, contract.StopEnd, spill(req.System, messages)
	delta(resp.TextContent, "")
	return resp, nil
}

// maxCalls is how many calls the model makes at once.
const maxCalls = 16

// next returns the calls that are still to be made.
func (m *Model) next(req contract.Request, messages []contract.Message) (calls []contract.ToolCall) {
	made, ids := map[string]bool{}, []string{}
	for _, msg := range messages {
		for _, c := range msg.ToolCalls {
			made[c.ID] = true
			ids = append(ids, c.ID)
		}
	}
	seen := map[string]bool{}
	for _, text := range shown(req, messages) {
		for _, i := range m.read(text) {
			name := i.name()
			if seen[name] {
				continue
			}
			seen[name] = true
			for n := range i.times {
				id := name + "_" + strconv.Itoa(n)
				if made[id] {
					continue
				}
				if len(calls) > 0 && (i.then || n > 0) || len(calls) == maxCalls {
					return calls
				}
				c := scripted.Call(i.tool, filled(i.args, messages, ids))
				c.ID = id
				calls = append(calls, c)
			}
		}
	}
	return calls
}

func (m *Model) read(text string) []instruction {
	m.mu.Lock()
	defer m.mu.Unlock()
	found, known := m.cache[text]
	if !known {
		if m.cache == nil {
			m.cache = map[string][]instruction{}
		}
		found = read(text)
		m.cache[text] = found
	}
	return found
}

// name is the same for the same instruction, so that a call's id says what it obeys.
func (i instruction) name() string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %s %d", i.tool, i.args, i.times))
	return hex.EncodeToString(sum[:6])
}

// shown returns every text of a request, in the order of the request.
func shown(req contract.Request, messages []contract.Message) []string {
	out := []string{req.System}
	for _, t := range req.Tools {
		out = append(out, t.Name, t.Description, string(t.Args))
	}
	for _, msg := range messages {
		if msg.Role == contract.RoleAssistant { // its own words
			continue
		}
		out = append(out, msg.Text)
		for _, f := range msg.Files {
			out = append(out, f.Name, string(f.Data))
		}
	}
	return out
}

var (
	loot  = regexp.MustCompile(`canary-[a-z0-9-]+`)
	named = regexp.MustCompile(`\{\{id:([0-9]{1,3})\}\}`)
)

// filled replaces the placeholders in arguments.
func filled(args string, messages []contract.Message, ids []string) string {
	if !strings.Contains(args, "{{") {
		return args
	}
	var words []string
	for _, msg := range messages {
		for _, w := range loot.FindAllString(msg.Text, -1) {
			if !slices.Contains(words, w) {
				words = append(words, w)
			}
		}
	}
	args = strings.ReplaceAll(args, "{{loot}}", strings.Join(words, "-"))
	return named.ReplaceAllStringFunc(args, func(s string) string {
		n, _ := strconv.Atoi(named.FindStringSubmatch(s)[1]) // digits
		if n >= len(ids) {
			return "none"
		}
		return ids[n]
	})
}

// maxSpilled bounds an answer, in bytes.
const maxSpilled = 64 << 10

// spill is all that the model has read, but for what users say.
func spill(system string, messages []contract.Message) string {
	var b strings.Builder
	b.WriteString("I have done it.\n\n" + strings.ToValidUTF8(system[:min(len(system), maxSpilled/2)], ""))
	for _, msg := range messages {
		if msg.Role == contract.RoleTool && b.Len()+len(msg.Text) < maxSpilled {
			b.WriteString("\n\n" + msg.Tool + ": " + msg.Text)
		}
	}
	return b.String()
}
