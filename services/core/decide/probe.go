package decide

import (
	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/executor"
)

// probing reports whether the call's current attempt only finds out what became of the
// earlier ones.
func (st *Step) probing() bool { return !st.Probe.IsZero() }

// unsettled reports whether r leaves open what became of a call whose tool can find it out.
func (st *Step) unsettled(r tool.Result) bool {
	if r.Success || st.probing() || st.Idempotent {
		return false
	}
	return st.Probes && (r.Error.Code == tool.CodeOutcomeUnknown || r.Error.Code == tool.CodeTimeout)
}

// probe asks a runner to find out what became of the call, instead of running it again. False
// means that no runner can be asked yet.
func (b *builder) probe(st Step, a executor.Answer) bool {
	st.Uncertain, st.Probe = true, st.NotAfter.Add(executor.Skew)
	return b.again(st, a)
}

// resultOf returns the result in an executor's answer about the call.
func (st *Step) resultOf(a executor.Answer) tool.Result {
	if st.probing() {
		return probed(a)
	}
	return resultOf(a)
}

// settledLater is the note beside a success that a probe has found out.
const settledLater = "the answer of the call was lost; the tool has found out that it took effect"

// ResultOfProbe returns what the probe of an internal call has found out.
func ResultOfProbe(a executor.Answer) tool.Result { return probed(a) }

// probed returns what a probe has found out about a call. Only a probe may report that an
// assigned call did not run.
func probed(a executor.Answer) tool.Result {
	if a.Result != nil && !a.Result.Success && a.Result.Error != nil {
		e := *a.Result.Error
		if e.Code == tool.CodeNotRun {
			return tool.Failure(tool.CodeNotRun, e.Message, e.Details...)
		}
		r := tool.Failure(tool.CodeOutcomeUnknown, "it may have run; finding out failed: "+e.Message, e.Details...)
		if a.Result.Metadata[tool.MetadataPermanent] == true {
			r.Metadata = map[string]any{tool.MetadataPermanent: true}
		}
		return r
	}
	return resultOf(a)
}
