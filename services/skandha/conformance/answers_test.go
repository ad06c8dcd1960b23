package conformance_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

type asked struct {
	InvocationID string          `json:"invocation_id"`
	Data         json.RawMessage `json:"data"`
	Call         string          `json:"call"`
	Attempt      string          `json:"attempt"`
	Args         *struct{ A, B *int64 }
	Name         string          `json:"name"`
	Agent        string          `json:"agent"`
	Collection   string          `json:"collection"`
	Key          string          `json:"key"`
	Value        json.RawMessage `json:"value"`
	Text         string          `json:"text"`
	Query        string          `json:"query"`
}

// delay is how long it takes its time.
func (b *base) delay(subj string) time.Duration {
	act, tool := strings.HasPrefix(subj, "hook.before_act."), strings.HasPrefix(subj, "tool.")
	switch {
	case b.fault == "late" && act:
		return 3200 * time.Millisecond // the suite listens for 3 s more than the deadline
	case b.fault == "silent" && act:
		return time.Hour
	case b.fault == "slow tool" && tool:
		return 2100 * time.Millisecond // likewise 2 s more
	}
	return 0
}

// answer is what the plugin says to a question, or the code of an error.
func (b *base) answer(m *nats.Msg) (body []byte, bad string) {
	var q asked
	if err := json.Unmarshal(m.Data, &q); err != nil || len(m.Data) == 0 {
		return nil, b.shocked(m)
	}
	kind, _, _ := strings.Cut(m.Subject, ".")
	switch kind {
	case "hook":
		if q.InvocationID == "" || len(q.Data) == 0 || q.Data[0] != '{' {
			return nil, b.shocked(m)
		}
		if b.fault == "own case" && strings.Contains(string(q.Data), "own:tool") {
			return []byte(`{"verb": "confirm", "warning": {"level": "warning", "message": "sure?"}}`), ""
		}
		return b.once("hook"+q.InvocationID+string(q.Data), func() []byte { return b.hook(m.Subject) }), ""
	case "tool":
		if q.Call == "" || q.Args == nil || q.Args.A == nil {
			return nil, b.shocked(m)
		}
		return b.once("tool"+q.Call+q.Attempt, func() []byte { return b.add(q) }), ""
	case "llm":
		if b.fault == "model says both" {
			return []byte(`{"response": {"is_final": true, "text_content": "hi", "usage": {"input_tokens": 1, "output_tokens": 1}}, "error": {"code": "auth", "message": "x", "retryable": false}}`), ""
		}
		if b.fault == "model says nothing" {
			return []byte(`{"response": {"is_final": true, "usage": {"input_tokens": 1, "output_tokens": 0}}}`), ""
		}
		return []byte(`{"response": {"is_final": true, "text_content": "hello", "usage": {"input_tokens": 1, "output_tokens": 1}}}`), ""
	case "storage":
		return b.store(m.Subject, q), ""
	}
	switch {
	case q.Name != "teacher" && b.fault != "any guide":
		return nil, "not_found"
	case b.fault == "another guide":
		return []byte(`{"name": "pupil", "system_prompt": "Learn."}`), ""
	}
	return []byte(fmt.Sprintf(`{"name": %q, "system_prompt": "Teach."}`, q.Name)), ""
}

// shocked is the answer to garbage.
func (b *base) shocked(m *nats.Msg) string {
	isTool := strings.HasPrefix(m.Subject, "tool.")
	switch {
	case b.fault == "garbage kills hooks" &&
		strings.HasPrefix(m.Subject, "hook.before_sense."), b.fault == "garbage kills tools" && isTool:
		fmt.Fprintln(os.Stderr, "panic: what is that?")
		os.Exit(2)
	case b.fault == "garbage stuns hooks" && strings.HasPrefix(m.Subject, "hook.before_sense."):
		_ = m.Sub.Unsubscribe()
	}
	return "invalid_argument"
}

func (b *base) hook(subj string) []byte {
	b.counter++
	act, sense := strings.HasPrefix(subj, "hook.before_act."), strings.HasPrefix(subj, "hook.before_sense.")
	switch {
	case b.fault == "no JSON" && act:
		return []byte("yes, do that")
	case b.fault == "unknown verb" && act:
		return []byte(`{"verb": "maybe"}`)
	case b.fault == "deny without reason" && act:
		return []byte(`{"verb": "deny"}`)
	case b.fault == "confirm elsewhere" && sense:
		return []byte(`{"verb": "confirm", "warning": {"level": "warn", "message": "sure?"}}`)
	case b.fault == "bad replacement" && sense:
		return []byte(`{"verb": "replace", "data": {"text": "x", "writer": "w", "colour": "red"}}`)
	case b.fault == "observer denies" && strings.HasPrefix(subj, "hook.after_reflect."):
		return []byte(`{"verb": "deny", "reason": "too late"}`)
	case strings.HasPrefix(subj, "hook.after_sense."):
		return nil // empty: continue
	case act:
		return []byte(fmt.Sprintf(`{"verb": "deny", "reason": "number %d"}`, b.counter))
	}
	return []byte(`{"verb": "continue"}`)
}

func (b *base) add(q asked) []byte {
	b.counter++
	sum := *q.Args.A
	if q.Args.B != nil {
		sum += *q.Args.B
	}
	switch b.fault {
	case "bad result":
		return []byte(fmt.Sprintf(`{"result": %d}`, sum))
	case "core's code":
		return []byte(`{"success": false, "error": {"code": "denied", "message": "no"}}`)
	}
	return []byte(fmt.Sprintf(`{"success": true, "data": {"sum": %d, "run": %d}}`, sum, b.counter))
}

func (b *base) store(subj string, q asked) []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	own := q.Agent + "/" + q.Collection + "/"
	if b.fault == "one agent's storage" {
		own = q.Collection + "/"
	}
	_, verb, _ := strings.Cut(strings.TrimPrefix(subj, "storage."), ".")
	switch verb {
	case "put":
		b.stored[own+q.Key], b.stored["text/"+own+q.Key] = q.Value, json.RawMessage(q.Text)
	case "delete":
		if b.fault != "keeps what was deleted" {
			delete(b.stored, own+q.Key)
		}
	case "get":
		v, found := b.stored[own+q.Key]
		if b.fault == "storage is a string" && found {
			v, _ = json.Marshal(string(v))
		}
		out, _ := json.Marshal(map[string]any{"found": found, "value": v})
		if !found {
			out = []byte(`{}`)
		}
		return out
	case "search":
		for k, v := range b.stored {
			key, is := strings.CutPrefix(k, own)
			if is && strings.Contains(string(b.stored["text/"+k]), q.Query) {
				out, _ := json.Marshal(map[string]any{"entries": []any{map[string]any{"key": key, "value": v, "score": 1}}})
				return out
			}
		}
	}
	return []byte(`{}`)
}
