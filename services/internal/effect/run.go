package effect

import (
	"context"
	"fmt"
	"time"

	"skandha.dev/pkg/tool"
)

// endWait bounds the recording of a result, which delays the answer.
const endWait = 2 * time.Second

// Run runs an attempt at a call of a tool with a probe, and records its result if run has called
// begin. run returns the result as it is sent.
func (m *Marks) Run(
	ctx context.Context, key, attempt string, run func(begin func(context.Context) error) tool.Result,
) tool.Result {
	mark := m.Mark(key, attempt)
	r := run(mark.Begin)
	if !r.Success && r.Error != nil && (r.Error.Code == tool.CodeOutcomeUnknown || r.Error.Code == tool.CodeTimeout) {
		return r // a probe will find it out
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endWait)
	defer cancel()
	// Without this record, a probe asks the other system.
	_ = mark.End(ctx, r)
	return r
}

// Probe finds out what became of earlier attempts at a call, which cannot begin any more
// afterwards. It calls ask, with the record of the attempt that began, only if that left no result.
func (m *Marks) Probe(ctx context.Context, key string, ask func(began Record) tool.Result) tool.Result {
	r, err := m.Close(ctx, key)
	switch {
	case err != nil:
		return tool.Failure(tool.CodeOutcomeUnknown, err.Error())
	case r.State == Ended && r.Result != nil:
		return *r.Result
	case r.State == Closed:
		return tool.Failure(tool.CodeNotRun, "the call was given up before it had any effect")
	}
	res := ask(r)
	if res.Error != nil && res.Error.Code == tool.CodeOutcomeUnknown {
		e := *res.Error
		e.Message = fmt.Sprintf("it began at %s: %s", r.At.Format(time.RFC3339), e.Message)
		res.Error = &e
	}
	return res
}
