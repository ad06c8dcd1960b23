package decide_test

import (
	"encoding/json"
	"fmt"
	"strings"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/provider"
	"skandha.dev/services/core/decide"
)

// wellFormed checks what models rely on (the window begins with a user's message, and
// every call has a result), and that no input waits without a running turn or a pause.
func wellFormed(s *decide.State) error {
	if s.Turn == nil && len(s.Queue) > 0 && s.Paused == nil {
		return fmt.Errorf("%d inputs wait and no turn is open", len(s.Queue))
	}
	if (s.Turn == nil) != (s.Driver == 0) {
		return fmt.Errorf("driver is %d, turn open: %t", s.Driver, s.Turn != nil)
	}
	all := make([]json.RawMessage, len(s.Window))
	for i, e := range s.Window {
		all[i] = e.Msg
	}
	if err := conversation(all, s.Turn != nil && len(s.Turn.Steps) > 0); err != nil {
		return fmt.Errorf("window: %w", err)
	}
	if s.Turn == nil || s.Turn.Plan == nil {
		return nil
	}
	r := decide.Prompt(s, &decide.Agent{Limits: decide.Limits{WindowTurns: 2}})
	if err := conversation(r.Messages, false); err != nil {
		return fmt.Errorf("prompt: %w", err)
	}
	if len(r.Messages) == 0 {
		return fmt.Errorf("the model is asked with nothing")
	}
	return nil
}

// conversation checks messages. While a round is open, its calls are the last message.
func conversation(raw []json.RawMessage, open bool) error {
	msgs, err := provider.Request{Messages: raw}.Conversation()
	if err != nil {
		return err
	}
	var want []provider.ToolCall
	for i, m := range msgs {
		if (m.Role == provider.RoleTool) != (len(want) > 0) {
			return fmt.Errorf("message %d is of the %s while %d results are missing", i, m.Role, len(want))
		}
		switch m.Role {
		case provider.RoleTool:
			if m.CallID != want[0].ID || m.Tool != want[0].Tool {
				return fmt.Errorf("message %d answers %q of %q, want %q of %q", i, m.CallID, m.Tool, want[0].ID, want[0].Tool)
			}
			want = want[1:]
		case provider.RoleAssistant:
			if m.Text == "" && len(m.ToolCalls) == 0 {
				return fmt.Errorf("message %d says nothing", i)
			}
			ids := map[string]bool{}
			for _, c := range m.ToolCalls {
				if ids[c.ID] || c.ID == "" {
					return fmt.Errorf("message %d holds two calls %q", i, c.ID)
				}
				ids[c.ID] = true
			}
			want = m.ToolCalls
		case provider.RoleUser:
		default:
			return fmt.Errorf("message %d has role %q", i, m.Role)
		}
		if i == 0 && m.Role != provider.RoleUser {
			return fmt.Errorf("it begins with the %s", m.Role)
		}
	}
	if len(want) > 0 && !open {
		return fmt.Errorf("%d results are missing at the end", len(want))
	}
	return nil
}

func summary(c event.Commit) string {
	var b strings.Builder
	for _, e := range c.Events {
		if e.Type == event.TypeUIState || e.Type == event.TypeUIReady {
			continue
		}
		fmt.Fprintf(&b, "\n      %s %.300s", strings.TrimSuffix(strings.TrimPrefix(string(e.Type), "skandha."), ".v1"),
			e.Data)
	}
	return b.String()
}
