package toolrunner

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"skandha.dev/pkg/bus"
	contract "skandha.dev/pkg/executor"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/executor"
	"skandha.dev/services/internal/jsonerror"
	"skandha.dev/services/internal/plugincall"
	"skandha.dev/services/internal/result"
	"skandha.dev/services/toolrunner/tools"
)

// MaxMetadata is the largest metadata of a plugin's result that is kept, in bytes.
const MaxMetadata = 4 << 10

// callPlugin has a plugin carry out one attempt.
func (r *runner) callPlugin(ctx context.Context, c tools.Call, t *remote) contract.Answer {
	args, errs := t.args.Validate(c.Args)
	if errs != nil {
		return answer(r.limit(ctx, c, misfit(errs)))
	}
	deadline, _ := ctx.Deadline() // the executor's work always has one
	body, err := json.Marshal(tool.Call{
		Call: c.ID, Attempt: c.Attempt, Agent: c.Agent, Session: c.Session, Turn: c.Turn,
		Tool: t.spec.Name, Args: args, Deadline: deadline.UTC(),
	})
	if err != nil {
		return executor.DidNotRun("encoding the call: " + err.Error())
	}
	reply, err := r.plugins.Ask(ctx, plugincall.Request{
		Plugin: t.plugin, Hash: t.hash, Subject: subject.Tool(t.plugin, t.spec.Name), Body: body,
		Replicas: true, Repeatable: t.spec.Idempotent,
	})
	if errors.Is(err, plugincall.ErrNotAsked) {
		return executor.DidNotRun(err.Error())
	}
	var res tool.Result
	if err != nil {
		res = unanswered(t.plugin, err)
	} else {
		res = readResult(t.plugin, reply)
	}
	return answer(r.limit(ctx, c, res))
}

// limit makes a result fit to be committed.
func (r *runner) limit(ctx context.Context, c tools.Call, res tool.Result) tool.Result {
	return result.Limit(ctx, r.store, result.Name(subject.Ref{Agent: c.Agent, Session: c.Session}, c.ID, c.Attempt), res)
}

func answer(r tool.Result) contract.Answer { return contract.Answer{Result: &r} }

// misfit is the result of a call whose arguments do not fit the schema.
func misfit(errs []string) tool.Result {
	return tool.Failure(tool.CodeInvalidArgs, "the arguments do not fit; the tool did not run", errs...)
}

// unanswered is what can truthfully be said of a call that the plugin may have got
// and that brought no result.
func unanswered(p subject.Plugin, err error) tool.Result {
	var said *bus.Error
	switch {
	case errors.Is(err, plugincall.ErrUnreadable) && errors.Is(err, bus.ErrTooLarge):
		return tool.Failure(tool.CodeTooLarge, fmt.Sprintf("it did run: plugin %s has answered, and the answer is too large: %v", p, err))
	case errors.Is(err, plugincall.ErrUnreadable), errors.Is(err, plugincall.ErrLost):
		return tool.Failure(tool.CodeOutcomeUnknown, "it may have run: "+err.Error())
	case errors.As(err, &said):
		return refused(p, said)
	case errors.Is(err, context.DeadlineExceeded):
		return tool.Failure(tool.CodeTimeout, fmt.Sprintf("plugin %s has not answered in time", p))
	}
	return tool.Failure(tool.CodeOutcomeUnknown, fmt.Sprintf("it may have run: plugin %s has not answered: %v", p, err))
}

// refused is the result of a call that a plugin answered with an error reply. What
// the plugin says of it is the plugin's word, and no code that only core may say.
func refused(p subject.Plugin, e *bus.Error) tool.Result {
	code := tool.CodeFailed
	switch e.Code {
	case bus.CodeTimeout:
		code = tool.CodeTimeout
	case bus.CodeInternal:
		code = tool.CodeInternal
	case bus.CodeTooLarge:
		code = tool.CodeTooLarge
	case bus.CodeInvalidArgument, bus.CodeNotFound, bus.CodeDenied, bus.CodeUnavailable, bus.CodeConflict, bus.CodeCancelled:
	}
	return tool.Failure(code, fmt.Sprintf("plugin %s answered with the error %s: %s", p, e.Code, e.Message))
}

// readResult reads what a plugin answered to a call. It has the request, so what
// is no result leaves open whether the tool ran.
func readResult(p subject.Plugin, reply []byte) tool.Result {
	reply = bytes.ToValidUTF8(reply, []byte("\uFFFD")) // what is no UTF-8 could stand in strings alone
	var w struct {
		Success  *bool           `json:"success"`
		Data     json.RawMessage `json:"data"`
		Error    *pluginError    `json:"error"`
		Metadata json.RawMessage `json:"metadata"`
	}
	err := jsonerror.Decode(reply, &w)
	switch {
	case err != nil:
	case w.Success == nil:
		err = errors.New(`"success" is missing`)
	case *w.Success && w.Error != nil:
		err = errors.New(`"success" is true and there is an "error"`)
	}
	if err != nil && isOutput(reply) {
		return tool.Result{Success: true, Data: reply}
	}
	if err != nil {
		return tool.Failure(tool.CodeOutcomeUnknown, fmt.Sprintf(
			"it may have run: plugin %s has answered with something that is no tool result (schemas/tool/answer.json): %v", p, err))
	}
	r := tool.Result{Success: *w.Success, Data: w.Data, Metadata: readMetadata(w.Metadata)}
	if !r.Success {
		r.Error = readError(p, (*tool.Error)(w.Error))
	}
	return r
}

// pluginError is an error as plugins may give it: an object, or a text as in the specification.
type pluginError tool.Error

// UnmarshalJSON implements [json.Unmarshaler].
func (e *pluginError) UnmarshalJSON(b []byte) error {
	if bytes.HasPrefix(b, []byte(`"`)) {
		e.Code = tool.CodeFailed
		return json.Unmarshal(b, &e.Message)
	}
	if err := jsonerror.Decode(b, (*tool.Error)(e)); err != nil {
		return fmt.Errorf(`"error": %w`, err)
	}
	return nil
}

// isOutput reports whether a reply is what the specification has a code interpreter answer:
// an object of stdout, stderr and result, without success around it.
func isOutput(reply []byte) bool {
	var w struct {
		Stdout *string         `json:"stdout"`
		Stderr *string         `json:"stderr"`
		Result json.RawMessage `json:"result"`
	}
	return jsonerror.Decode(reply, &w) == nil && w.Stdout != nil && w.Stderr != nil
}

// plugins' own codes: all others are core's or the runner's to say.
var pluginCodes = []tool.Code{
	tool.CodeFailed, tool.CodeInvalidArgs, tool.CodeTimeout, tool.CodeOutcomeUnknown, tool.CodeInternal, tool.CodeTooLarge,
}

func readError(p subject.Plugin, e *tool.Error) *tool.Error {
	if e == nil {
		return &tool.Error{Code: tool.CodeFailed, Message: fmt.Sprintf("plugin %s says that it failed, and not why", p)}
	}
	out := *e
	if !slices.Contains(pluginCodes, e.Code) {
		out.Code, out.Message = tool.CodeFailed, result.Clip(e.Error(), result.MaxMessage)
	}
	if out.Message == "" {
		out.Message = fmt.Sprintf("plugin %s says that it failed, and not why", p)
	}
	return &out
}

// readMetadata keeps a plugin's metadata without what the runner itself says there:
// "artifact" names a stored object, which must be this call's own.
func readMetadata(raw json.RawMessage) map[string]any {
	if len(raw) > MaxMetadata {
		return map[string]any{"metadata_error": fmt.Sprintf("the plugin's metadata has %d bytes, at most %d are kept", len(raw), MaxMetadata)}
	}
	var m map[string]any
	if err := json.Unmarshal(raw, &m); err != nil || len(m) == 0 {
		return nil // metadata is for people: a result is not lost for its sake
	}
	for _, ours := range []string{"artifact", "artifact_error", "truncated", "metadata_error"} {
		delete(m, ours)
	}
	return m
}
