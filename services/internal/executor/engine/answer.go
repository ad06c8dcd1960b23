package engine

import (
	"encoding/json"
	"fmt"
	"time"

	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/executor"
)

// encode adds the ids to the answer and encodes it. If that fails, because the work
// put something other than JSON into it, it encodes a failure.
func (t *Attempts) encode(k key, a executor.Answer) []byte {
	a.Call, a.Attempt, a.Instance = k.call, k.attempt, t.instance
	b, err := json.Marshal(a)
	if err == nil {
		return b
	}
	t.log.Error("cannot encode an answer", "call", k.call, "error", err)
	f := t.failure(tool.CodeInternal, provider.ErrInternal, "the answer is not valid JSON: "+err.Error())
	f.Call, f.Attempt, f.Instance, f.State, f.DurationMS = k.call, k.attempt, t.instance, executor.Finished, a.DurationMS
	b, _ = json.Marshal(f) // only strings and numbers
	return b
}

// failure returns a failed answer in the form of the instance's kind.
func (t *Attempts) failure(tc tool.Code, pc provider.ErrorCode, message string) executor.Answer {
	if t.kind == subject.Provider {
		return executor.Answer{Error: &provider.Error{Code: pc, Message: message, Retryable: pc == provider.ErrTimeout}}
	}
	r := tool.Failure(tc, message)
	return executor.Answer{Result: &r}
}

func (t *Attempts) timeout(ran time.Duration) executor.Answer {
	return t.failure(tool.CodeTimeout, provider.ErrTimeout,
		fmt.Sprintf("it timed out after %v", ran.Round(time.Millisecond)))
}

// failed reports whether the work returned a failure.
func failed(a executor.Answer) bool {
	return a.Error != nil || a.Response == nil && (a.Result == nil || !a.Result.Success)
}

// DidNotRun returns the answer of work that certainly had no effect and never will,
// because the request did not reach what would have carried it out. The attempt counts
// as refused, so that core may send it to another executor.
func DidNotRun(message string) executor.Answer {
	return executor.Answer{State: executor.Refused, Reason: executor.RefusedUnknown, Message: message}
}

// onlyPayload drops the fields that the work must not set, and replaces an empty answer
// by a failure.
func (t *Attempts) onlyPayload(a executor.Answer) executor.Answer {
	if a.State == executor.Refused {
		return DidNotRun(a.Message)
	}
	a = executor.Answer{Result: a.Result, Response: a.Response, Error: a.Error, Spent: a.Spent, Tasks: a.Tasks}
	if t.kind == subject.Provider {
		a.Result = nil
	} else {
		a.Response, a.Error = nil, nil
	}
	if a.Error == nil {
		a.Spent = provider.Usage{}
	}
	if a.Result == nil && a.Response == nil && a.Error == nil {
		return t.failure(tool.CodeInternal, provider.ErrInternal, "it returned without a result")
	}
	return a
}

// outOfTime turns a failure into a timeout and keeps the work's own message. It does not
// change a failure with an unknown outcome, which says more than a timeout.
func (t *Attempts) outOfTime(a executor.Answer, ran time.Duration) executor.Answer {
	if a.Result != nil && a.Result.Error != nil && a.Result.Error.Code == tool.CodeOutcomeUnknown {
		return a
	}
	out := t.timeout(ran)
	switch {
	case a.Result != nil && out.Result != nil:
		if e := a.Result.Error; e != nil {
			out.Result.Error.Details = append([]string{e.Message}, e.Details...)
		}
		out.Result.Data, out.Result.Metadata = a.Result.Data, a.Result.Metadata
	case a.Error != nil && out.Error != nil:
		out.Error.Message += ": " + a.Error.Message
		out.Spent = a.Spent
	}
	return out
}
