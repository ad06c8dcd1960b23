package hookscript

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"

	"skandha.dev/services/internal/program"
)

// MaxOutput is how many bytes a command may write to standard output.
const MaxOutput = 1 << 20

const maxReason = 4 << 10 // in bytes

// verdict is what a command decides.
type verdict struct {
	deny    string // the reason; empty: it does not deny
	ask     string // the reason to ask a person; empty: it does not
	input   json.RawMessage
	context string // for the model
}

func denies(format string, args ...any) verdict { return verdict{deny: fmt.Sprintf(format, args...)} }

// run runs a command with its input. It never fails: a command that does is a denial.
func (c Command) run(ctx context.Context, dir string, input []byte) verdict {
	name := shorten(c.Line, 60)
	out, err := program.Run(ctx, program.Program{
		Args: []string{"/bin/sh", "-c", c.Line}, Dir: dir, Input: input, MaxOutput: MaxOutput, Within: c.Timeout,
		Env: append(environment(), "CLAUDE_PROJECT_DIR="+dir, "CLAUDE_PLUGIN_ROOT="+dir, "PLUGIN_ROOT="+dir),
	})
	said := strings.TrimSpace(strings.ToValidUTF8(string(out.Errors), "\uFFFD"))
	var start *program.StartError
	var exit *exec.ExitError
	switch {
	case err == nil:
		return c.read(name, bytes.TrimSpace(out.Out))
	case errors.As(err, &start):
		return denies("the hook %s could not be started: %v", name, err)
	case errors.Is(err, program.ErrTooMuch):
		return denies("the hook %s wrote more than %d bytes", name, MaxOutput)
	case errors.Is(err, program.ErrTooSlow):
		return denies("the hook %s did not end within %v", name, c.Timeout)
	case ctx.Err() != nil:
		return denies("the hook %s was ended: %v", name, ctx.Err())
	case errors.As(err, &exit) && exit.ExitCode() == 2:
		if said == "" {
			said = "the hook " + name + " denies"
		}
		return verdict{deny: said}
	}
	return denies("the hook %s failed: %s", name, program.Reason(err, said))
}

// environment returns what a command gets of this process's: not where the bus is, nor the plugin's
// credentials.
func environment() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "SKANDHA_") })
}

// answer is the JSON that a command may write.
type answer struct {
	Continue *bool           `json:"continue"`
	Stop     string          `json:"stopReason"`
	Decision string          `json:"decision"`
	Reason   string          `json:"reason"`
	Hook     json.RawMessage `json:"hookSpecificOutput"`
	Quiet    json.RawMessage `json:"suppressOutput"` // for their face, like Notice
	Notice   json.RawMessage `json:"systemMessage"`
}

type specific struct {
	Event      string          `json:"hookEventName"`
	Permission string          `json:"permissionDecision"`
	Why        string          `json:"permissionDecisionReason"`
	Input      json.RawMessage `json:"updatedInput"`
	Context    string          `json:"additionalContext"`
}

// read reads what a command has written. Text that is no JSON is for people, and context after
// UserPromptSubmit.
func (c Command) read(name string, out []byte) verdict {
	out = bytes.TrimPrefix(out, []byte("\uFEFF"))
	if !json.Valid(out) && (len(out) == 0 || out[0] != '{') {
		if c.Event == UserPromptSubmit {
			return verdict{context: strings.ToValidUTF8(string(out), "\uFFFD")}
		}
		return verdict{}
	}
	var a answer
	var s specific
	err := decode(out, &a, "continue", "stopReason", "decision", "reason", "hookSpecificOutput", "suppressOutput", "systemMessage")
	if err == nil && len(a.Hook) > 0 {
		err = decode(a.Hook, &s, "hookEventName", "permissionDecision", "permissionDecisionReason", "updatedInput", "additionalContext")
	}
	if err != nil {
		return denies("the answer of the hook %s cannot be read: %v", name, err)
	}
	v := verdict{context: s.Context}
	if a.Continue != nil && !*a.Continue {
		return denies("%s", first(a.Stop, a.Reason, "the hook "+name+" stops"))
	}
	switch a.Decision {
	case "", "approve", "allow":
	case "block", "deny":
		return denies("%s", first(a.Reason, "the hook "+name+" blocks"))
	default:
		return denies("the hook %s decides %q, which is unknown", name, shorten(a.Decision, 40))
	}
	switch {
	case s.Event != "" && s.Event != c.Event:
		return denies("the hook %s answers %s, not %s", name, shorten(s.Event, 40), c.Event)
	case s.Permission == "deny":
		return denies("%s", first(s.Why, a.Reason, "the hook "+name+" denies"))
	case s.Permission == "ask":
		v.ask = first(s.Why, a.Reason, "the hook "+name+" asks")
	case s.Permission != "" && s.Permission != "allow":
		return denies("the hook %s decides %q, which is unknown", name, shorten(s.Permission, 40))
	}
	if len(s.Input) > 0 && string(s.Input) != "null" {
		if s.Input[0] != '{' || c.Event != PreToolUse {
			return denies("the hook %s answers with updatedInput that cannot be used", name)
		}
		v.input = s.Input
	}
	return v
}

// decode reads an object that has some of the keys, each once and spelled so: a decision under another
// one would be lost.
func decode(body []byte, into any, keys ...string) error {
	d := json.NewDecoder(bytes.NewReader(body))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return errors.New("want an object")
	}
	var seen []string
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return err
		}
		key, _ := t.(string)
		if !slices.Contains(keys, key) || slices.Contains(seen, key) {
			return fmt.Errorf("the key %q is unknown, or there twice", shorten(key, 40))
		}
		seen = append(seen, key)
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return err
		}
	}
	return json.Unmarshal(body, into)
}

func first(texts ...string) string {
	for _, s := range texts {
		if strings.TrimSpace(s) != "" {
			return shorten(s, maxReason)
		}
	}
	return "denied"
}

func shorten(s string, most int) string {
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}
