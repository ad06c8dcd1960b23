package decide

import (
	"fmt"
	"slices"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/executor"
)

// closingResult returns a truthful result for a call that is being closed.
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
		return st.resultOf(c.Answer)
	}
	return tool.Failure(tool.CodeOutcomeUnknown, "cancelled while it ran: part of its effect may have happened")
}

func resultOf(a executor.Answer) tool.Result {
	if a.Result == nil {
		return tool.Failure(tool.CodeInternal, "the runner finished without a result")
	}
	return reported(*a.Result)
}

// ResultOf returns the result of an internal call, with its obligations applied.
func ResultOf(a executor.Answer, o *event.Obligations) tool.Result {
	r, _ := (&Step{Attempt: a.Attempt, Obligations: o}).obliged(resultOf(a))
	return r
}

// reported limits what a runner or a hook may report about a call that ran. Only core
// may use the codes that mean that a call did not run.
func reported(r tool.Result) tool.Result {
	r.Files = described(r.Files)
	switch {
	case r.Success:
		r.Error = nil
	case r.Error == nil:
		r.Error = &tool.Error{Code: tool.CodeFailed, Message: "the call failed without giving a reason"}
	case didNotRun(r.Error.Code):
		e := *r.Error
		e.Code, e.Message = tool.CodeFailed, e.Error()
		r.Error = &e
	}
	return r
}

// described returns the files of a result without their content, and without those whose
// description is invalid.
func described(files []provider.File) []provider.File {
	var out []provider.File
	for _, f := range files[:min(len(files), event.MaxInputFiles)] {
		if f.Data = nil; f.Check() == nil {
			out = append(out, f)
		}
	}
	return out
}

func didNotRun(c tool.Code) bool {
	switch c {
	case tool.CodeCancelled, tool.CodeNotRun, tool.CodeSkipped, tool.CodeDenied, tool.CodeExpired:
		return true
	}
	return false
}

// amended applies what an after_act hook may change in a result: its message and its
// data. The hook cannot change whether the call ran.
func amended(was, by tool.Result) tool.Result {
	if was.Error == nil || was.Success {
		return reported(by)
	}
	if isCoreCode(was.Error.Code) {
		e := *was.Error
		if by.Error != nil {
			e.Message, e.Details = by.Error.Message, by.Error.Details
		}
		by.Success, by.Error = false, &e
		return by
	}
	return reported(by)
}

// reportFailure runs on_error for a call that failed after it was assigned to a runner.
func (b *builder) reportFailure(st *Step, r tool.Result) {
	if r.Success || st.Attempt == "" || isCoreCode(r.Error.Code) && r.Error.Code != tool.CodeOutcomeUnknown {
		return
	}
	ask(b, hook.OnError, st.Call, hook.ErrorData{Code: string(r.Error.Code), Message: r.Error.Message, Tool: st.Tool})
}

// isCoreCode reports whether the message of a result with the code is core's, not the
// tool's.
func isCoreCode(code tool.Code) bool {
	switch code {
	case tool.CodeOutcomeUnknown, tool.CodeUnknownTool, tool.CodeInvalidArgs, tool.CodeInvalidPlan:
		return true
	}
	return didNotRun(code)
}

// maxCommitBytes is the size of a commit above which results lose their data. Many
// calls may end in one commit, and the log accepts 8 MiB.
const maxCommitBytes = 4 << 20

// bounded drops the data of a result that does not fit into the commit.
func (b *builder) bounded(r tool.Result) tool.Result {
	const growth = 6 // of one byte, escaped
	if b.size+growth*len(r.Data) <= maxCommitBytes || b.size+len(encode(r.Data)) <= maxCommitBytes {
		return r
	}
	why := fmt.Sprintf("the result of %d bytes does not fit into the commit", len(r.Data))
	if r.Success {
		return tool.Failure(tool.CodeTooLarge, "the call succeeded; "+why)
	}
	e := *r.Error
	e.Details = append(slices.Clone(e.Details), why)
	r.Data, r.Error = nil, &e
	return r
}
