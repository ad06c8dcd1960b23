package decide

import (
	"encoding/json"
	"fmt"

	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
)

// closeRound appends the results of all calls to the conversation, in the order of the
// calls, so that a call and its result are always together.
func (s *State) closeRound() {
	t := s.Turn
	for i := range t.Steps {
		st := &t.Steps[i]
		if st.Parent != "" {
			continue
		}
		s.say(provider.Message{
			Role: provider.RoleTool, CallID: st.CallID, Tool: st.Tool,
			Text: st.text(), Failed: !st.Result.Success, Files: st.Result.Files,
		}, st.After...)
	}
	t.Steps = nil
}

// text returns a result as the model sees it.
func (st *Step) text() string {
	var text string
	if r := st.Result; r.Success {
		text = string(r.Data)
		if text == "" {
			text = "null"
		}
	} else {
		b, err := json.Marshal(map[string]any{"error": r.Error, "data": r.Data})
		if err != nil {
			b = []byte(`{"error":{"code":"internal"}}`)
		}
		text = string(b)
	}
	if st.Note != "" {
		text += "\n[" + st.Note + "]"
	}
	return text
}

// abandon ends the open turn and keeps the conversation well-formed: the user's
// message gets an answer, and every call a result. These texts are part of the fold.
func (s *State) abandon() {
	t := s.Turn
	if len(t.Steps) > 0 {
		for i := range t.Steps {
			if st := &t.Steps[i]; st.Result == nil {
				r := tool.Failure(tool.CodeCancelled, "the turn ended before")
				st.Result, st.Status = &r, Done
			}
		}
		s.closeRound()
	}
	s.say(provider.Message{Role: provider.RoleAssistant, Text: "[This turn ended without an answer.]"})
	s.Turn = nil
}

// say appends to the conversation and drops the oldest turns that exceed the window. after are labels
// of the message beside those that it says itself.
func (s *State) say(m provider.Message, after ...string) {
	b, err := json.Marshal(m)
	if err != nil {
		panic(fmt.Sprintf("decide: encoding message: %v", err)) // its raw parts were decoded from JSON
	}
	entry := Entry{s.Turn.ID, b, after, origin(m)}
	s.Chain = entry.chain(s.Chain)
	s.Window = grow(s.Window, &s.windowTail, entry)
	size := 0
	for _, e := range s.Window {
		size += len(e.Msg)
	}
	for len(s.Window) > windowEntries || size > windowBytes {
		first := s.Window[0].Turn
		if first == s.Turn.ID {
			break
		}
		size -= s.dropTurn(first)
	}
}

// dropTurn removes the window's first turn, and returns the size of its messages.
func (s *State) dropTurn(turn string) (size int) {
	for len(s.Window) > 0 && s.Window[0].Turn == turn {
		size += len(s.Window[0].Msg)
		s.WindowBase = s.Window[0].chain(s.WindowBase)
		s.Window = s.Window[1:]
	}
	return size
}

func seenKey(w subject.Writer, id string) string { return string(w) + "/" + id }

func (s *State) see(key string, seq uint64) {
	in := SeenInput{key, seq}
	s.SeenChain = in.chain(s.SeenChain)
	s.Seen = grow(s.Seen, &s.seenTail, in)
	for len(s.Seen) > seenInputs {
		s.SeenBase = s.Seen[0].chain(s.SeenBase)
		s.Seen = s.Seen[1:]
	}
}

// seen reports whether the writer has used the id before, and for which input.
func (s *State) seen(w subject.Writer, id string) (uint64, bool) {
	if id == "" {
		return 0, false
	}
	key := seenKey(w, id)
	for i := len(s.Seen) - 1; i >= 0; i-- {
		if s.Seen[i].Key == key {
			return s.Seen[i].Sequence, true
		}
	}
	return 0, false
}
