package decide

import (
	"fmt"
	"slices"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/executor"
	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/tool"
)

// closingResult is what can truthfully be said of a call that is being closed.
func closingResult(st Step, closings Closings) tool.Result {
	if st.Status != Assigned {
		return tool.Failure(tool.CodeCancelled, "cancelled before it was given to a runner: it did not run")
	}
	c, asked := closings[st.Call]
	if !asked || c.Unreachable || c.Answer.Attempt != st.Attempt { // rule 6
		return tool.Failure(tool.CodeOutcomeUnknown, "cancelled; its runner cannot be reached: it may have run")
	}
	switch c.Answer.State {
	case executor.Never, executor.Refused:
		if st.Uncertain {
			return tool.Failure(tool.CodeOutcomeUnknown, "cancelled; an earlier attempt may have run")
		}
		return tool.Failure(tool.CodeCancelled, "cancelled before it began: it did not run")
	case executor.Finished:
		return resultOf(c.Answer)
	}
	return tool.Failure(tool.CodeOutcomeUnknown, "cancelled while it ran: part of its effect may have happened")
}

func resultOf(a executor.Answer) tool.Result {
	if a.Result == nil {
		return tool.Failure(tool.CodeInternal, "the runner finished without a result")
	}
	return reported(*a.Result)
}

// ResultOf is the result of a call that no turn made, with its obligations applied.
func ResultOf(a executor.Answer, o *event.Obligations) tool.Result {
	r, _ := (&Step{Attempt: a.Attempt, Obligations: o}).obliged(resultOf(a))
	return r
}

// reported is what a runner or a hook may say of a call that ran. The codes that
// say it did not run are core's alone.
func reported(r tool.Result) tool.Result {
	switch {
	case r.Success:
		r.Error = nil
	case r.Error == nil:
		r.Error = &tool.Error{Code: tool.CodeFailed, Message: "it failed without saying why"}
	case didNotRun(r.Error.Code):
		e := *r.Error
		e.Code, e.Message = tool.CodeFailed, e.Error()
		r.Error = &e
	}
	return r
}

func didNotRun(c tool.Code) bool {
	switch c {
	case tool.CodeCancelled, tool.CodeNotRun, tool.CodeSkipped, tool.CodeDenied, tool.CodeExpired:
		return true
	}
	return false
}

// amended is what an after_act hook may make of a result: its words and its
// data. Whether the call ran is not the hook's to say.
func amended(was, by tool.Result) tool.Result {
	if was.Error == nil || was.Success {
		return reported(by)
	}
	if coresOwn(was.Error.Code) {
		e := *was.Error
		if by.Error != nil {
			e.Message, e.Details = by.Error.Message, by.Error.Details
		}
		by.Success, by.Error = false, &e
		return by
	}
	return reported(by)
}

// reportFailure runs on_error for a call that a runner was given and that failed.
func (b *builder) reportFailure(st *Step, r tool.Result) {
	if r.Success || st.Attempt == "" || coresOwn(r.Error.Code) && r.Error.Code != tool.CodeOutcomeUnknown {
		return
	}
	ask(b, hook.OnError, st.Call, hook.ErrorData{Code: string(r.Error.Code), Message: r.Error.Message, Tool: st.Tool})
}

// coresOwn reports whether a result with the code holds core's words, not the tool's.
func coresOwn(code tool.Code) bool {
	switch code {
	case tool.CodeOutcomeUnknown, tool.CodeUnknownTool, tool.CodeInvalidArgs, tool.CodeInvalidPlan:
		return true
	}
	return didNotRun(code)
}

// maxCommitBytes is how much a commit may hold before results lose their data.
// Many calls may end in one, and the log takes 8 MiB.
const maxCommitBytes = 4 << 20

// bounded drops the data of a result that the commit has no room for.
func (b *builder) bounded(r tool.Result) tool.Result {
	const growth = 6 // of one byte, escaped
	if b.size+growth*len(r.Data) <= maxCommitBytes || b.size+len(encode(r.Data)) <= maxCommitBytes {
		return r
	}
	why := fmt.Sprintf("its result of %d bytes does not fit beside the others", len(r.Data))
	if r.Success {
		return tool.Failure(tool.CodeTooLarge, "it ran with success; "+why)
	}
	e := *r.Error
	e.Details = append(slices.Clone(e.Details), why)
	r.Data, r.Error = nil, &e
	return r
}
