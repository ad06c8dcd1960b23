package toolrunner

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/strictjson"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	contract "skandha.dev/services/internal/executor"
	"skandha.dev/services/internal/executor/engine"
	"skandha.dev/services/internal/plugincall"
	"skandha.dev/services/internal/result"
	"skandha.dev/services/internal/text"
	"skandha.dev/services/toolrunner/tools"
)

// maxMetadata is the largest metadata of a plugin's result that is kept, in bytes.
const maxMetadata = 4 << 10

// callPlugin sends one attempt to a plugin and returns its answer.
func (r *runner) callPlugin(ctx context.Context, c tools.Call, t *remote, probe *tool.Probe) contract.Answer {
	args, errs := t.args.Validate(c.Args)
	if errs != nil {
		return answer(r.limit(ctx, c, misfit(errs)))
	}
	deadline, _ := ctx.Deadline() // the executor's work always has one
	body, err := json.Marshal(tool.Call{
		Call: c.ID, Attempt: c.Attempt, Agent: c.Agent, Session: c.Session, Turn: c.Turn,
		Tool: t.spec.Name, Args: args, Deadline: deadline.UTC(), Key: c.Key, Probe: probe,
	})
	if err != nil {
		return engine.DidNotRun("encoding the call: " + err.Error())
	}
	reply, err := r.plugins.Ask(ctx, plugincall.Request{
		Plugin: t.plugin, Hash: t.hash, Subject: subject.Tool(t.plugin, t.spec.Name), Body: body,
		Replicas: true, Repeatable: t.spec.Idempotent || probe != nil,
	})
	if errors.Is(err, plugincall.ErrNotAsked) {
		return engine.DidNotRun(err.Error())
	}
	var res tool.Result
	if err != nil {
		res = unanswered(t.plugin, err)
	} else {
		res = readResult(t.plugin, reply, probe != nil)
	}
	return answer(r.limit(ctx, c, res))
}

// limit reduces a result to a size that can be committed.
func (r *runner) limit(ctx context.Context, c tools.Call, res tool.Result) tool.Result {
	return result.Limit(ctx, r.store, result.Name(subject.Ref{Agent: c.Agent, Session: c.Session}, c.ID, c.Attempt), res)
}

func answer(r tool.Result) contract.Answer { return contract.Answer{Result: &r} }

// misfit returns the result of a call whose arguments do not match the schema.
func misfit(errs []string) tool.Result {
	return tool.Failure(tool.CodeInvalidArgs, "invalid arguments; the tool was not run", errs...)
}

// unanswered returns the result of a call that the plugin may have received and did
// not answer; it claims nothing that is not known.
func unanswered(p subject.Plugin, err error) tool.Result {
	var said *bus.Error
	switch {
	case errors.Is(err, plugincall.ErrUnreadable) && errors.Is(err, bus.ErrTooLarge):
		return tool.Failure(tool.CodeTooLarge,
			fmt.Sprintf("it did run: plugin %s answered, but the answer is too large: %v", p, err))
	case errors.Is(err, plugincall.ErrUnreadable), errors.Is(err, plugincall.ErrLost):
		return tool.Failure(tool.CodeOutcomeUnknown, "it may have run: "+err.Error())
	case errors.As(err, &said):
		return refused(p, said)
	case errors.Is(err, context.DeadlineExceeded):
		return tool.Failure(tool.CodeTimeout, fmt.Sprintf("plugin %s did not answer in time", p))
	}
	return tool.Failure(tool.CodeOutcomeUnknown, fmt.Sprintf("it may have run: plugin %s did not answer: %v", p, err))
}

// refused returns the result of a call that a plugin answered with an error reply. The
// plugin's code is never one that only core may use.
func refused(p subject.Plugin, e *bus.Error) tool.Result {
	code := tool.CodeFailed
	switch e.Code {
	case bus.CodeTimeout:
		code = tool.CodeTimeout
	case bus.CodeInternal:
		code = tool.CodeInternal
	case bus.CodeTooLarge:
		code = tool.CodeTooLarge
	case bus.CodeInvalidArgument, bus.CodeNotFound, bus.CodeDenied, bus.CodeUnavailable, bus.CodeConflict,
		bus.CodeCancelled:
	}
	return tool.Failure(code, fmt.Sprintf("plugin %s answered with the error %s: %s", p, e.Code, e.Message))
}

// readResult reads a plugin's answer to a call. The plugin has the request, so an
// invalid answer leaves open whether the tool ran. Only a probe may report that it did not.
func readResult(p subject.Plugin, reply []byte, probe bool) tool.Result {
	reply = bytes.ToValidUTF8(reply, []byte("\uFFFD")) // invalid UTF-8 can occur only inside strings
	var w struct {
		Success  *bool           `json:"success"`
		Data     json.RawMessage `json:"data"`
		Error    *pluginError    `json:"error"`
		Metadata json.RawMessage `json:"metadata"`
	}
	err := strictjson.Decode(reply, &w)
	switch {
	case err != nil:
	case w.Success == nil:
		err = errors.New(`"success" is missing`)
	case *w.Success && w.Error != nil:
		err = errors.New(`"success" is true and "error" is set`)
	}
	if err != nil && isOutput(reply) {
		return tool.Result{Success: true, Data: reply}
	}
	if err != nil {
		return tool.Failure(tool.CodeOutcomeUnknown, fmt.Sprintf(
			"it may have run: the answer of plugin %s is not a tool result (schemas/tool/answer.json): %v", p, err))
	}
	r := tool.Result{Success: *w.Success, Data: w.Data, Metadata: readMetadata(w.Metadata)}
	if !r.Success {
		r.Error = readError(p, (*tool.Error)(w.Error), probe)
	}
	return r
}

// pluginError is an error as plugins may send it: an object, or a text as in the specification.
type pluginError tool.Error

// UnmarshalJSON implements [json.Unmarshaler].
func (e *pluginError) UnmarshalJSON(b []byte) error {
	if bytes.HasPrefix(b, []byte(`"`)) {
		e.Code = tool.CodeFailed
		return json.Unmarshal(b, &e.Message)
	}
	if err := strictjson.Decode(b, (*tool.Error)(e)); err != nil {
		return fmt.Errorf(`"error": %w`, err)
	}
	return nil
}

// isOutput reports whether a reply is a code interpreter's answer by the specification:
// an object of stdout, stderr and result, without success around it.
func isOutput(reply []byte) bool {
	var w struct {
		Stdout *string         `json:"stdout"`
		Stderr *string         `json:"stderr"`
		Result json.RawMessage `json:"result"`
	}
	return strictjson.Decode(reply, &w) == nil && w.Stdout != nil && w.Stderr != nil
}

// the codes that plugins may use: all others are reserved for core and the runner.
var pluginCodes = []tool.Code{
	tool.CodeFailed, tool.CodeInvalidArgs, tool.CodeTimeout, tool.CodeOutcomeUnknown, tool.CodeInternal, tool.CodeTooLarge,
}

func readError(p subject.Plugin, e *tool.Error, probe bool) *tool.Error {
	if e == nil {
		return &tool.Error{Code: tool.CodeFailed, Message: fmt.Sprintf("plugin %s failed without giving a reason", p)}
	}
	out := *e
	if !slices.Contains(pluginCodes, e.Code) && (!probe || e.Code != tool.CodeNotRun) {
		out.Code, out.Message = tool.CodeFailed, text.Cut(e.Error(), result.MaxMessage)
	}
	if out.Message == "" {
		out.Message = fmt.Sprintf("plugin %s failed without giving a reason", p)
	}
	return &out
}

// readMetadata returns a plugin's metadata without the keys that the runner itself sets:
// "artifact" names a stored object, which must belong to this call.
func readMetadata(raw json.RawMessage) map[string]any {
	if len(raw) > maxMetadata {
		return map[string]any{
			"metadata_error": fmt.Sprintf("the plugin's metadata has %d bytes, at most %d are kept", len(raw), maxMetadata),
		}
	}
	var m map[string]any
	if err := json.Unmarshal(raw, &m); err != nil || len(m) == 0 {
		return nil // metadata is for people: a result must not be lost because of it
	}
	for _, ours := range []string{"artifact", "artifact_error", "truncated", "metadata_error"} {
		delete(m, ours)
	}
	return m
}
