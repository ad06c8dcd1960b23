package executor

import (
	"encoding/json"
	"fmt"
	"time"
	"unicode/utf8"

	"skandha.dev/pkg/executor"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
)

// encode fills in whose answer it is. What does not encode, because the work
// put something else than JSON into it, is answered as a failure.
func (t *Attempts) encode(k key, a executor.Answer) []byte {
	a.Call, a.Attempt, a.Instance = k.call, k.attempt, t.instance
	b, err := json.Marshal(a)
	if err == nil {
		return b
	}
	t.log.Error("an answer does not encode", "call", k.call, "error", err)
	f := t.failure(tool.CodeInternal, provider.ErrInternal, "the answer is not valid JSON: "+err.Error())
	f.Call, f.Attempt, f.Instance, f.State, f.DurationMS = k.call, k.attempt, t.instance, executor.Finished, a.DurationMS
	b, _ = json.Marshal(f) // strings and numbers alone
	return b
}

// failure is a failed answer in the form of the instance's kind.
func (t *Attempts) failure(tc tool.Code, pc provider.ErrorCode, message string) executor.Answer {
	if t.kind == subject.Provider {
		return executor.Answer{Error: &provider.Error{Code: pc, Message: message, Retryable: pc == provider.ErrTimeout}}
	}
	r := tool.Failure(tc, message)
	return executor.Answer{Result: &r}
}

func (t *Attempts) timeout(ran time.Duration) executor.Answer {
	return t.failure(tool.CodeTimeout, provider.ErrTimeout, fmt.Sprintf("it ran out of time after %v", ran.Round(time.Millisecond)))
}

// failed reports whether the work says that it did not do what it was asked for.
func failed(a executor.Answer) bool {
	return a.Error != nil || a.Response == nil && (a.Result == nil || !a.Result.Success)
}

// DidNotRun is the answer of work that certainly had no effect and never will: what
// would have carried it out did not get it. The attempt counts as refused, so that
// core may give it to someone else.
func DidNotRun(message string) executor.Answer {
	return executor.Answer{State: executor.Refused, Reason: executor.RefusedUnknown, Message: message}
}

// onlyPayload drops what is not for the work to say, and makes an answer of none.
func (t *Attempts) onlyPayload(a executor.Answer) executor.Answer {
	if a.State == executor.Refused {
		return DidNotRun(a.Message)
	}
	a = executor.Answer{Result: a.Result, Response: a.Response, Error: a.Error}
	if t.kind == subject.Provider {
		a.Result = nil
	} else {
		a.Response, a.Error = nil, nil
	}
	if a.Result == nil && a.Response == nil && a.Error == nil {
		return t.failure(tool.CodeInternal, provider.ErrInternal, "it returned without a result")
	}
	return a
}

// outOfTime marks a failure as one of time, keeping what the work itself said. Work
// that does not know whether it had its effect has said more than that.
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
	}
	return out
}

func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}
