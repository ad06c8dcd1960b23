// Package sandbox runs the code of models, isolated: it is the executor of
// python:execute, shell:execute and the tools of the group sandbox_fs.
//
// # Subjects
//
// It is an executor of kind runner (see services/internal/executor) with slots of its
// own, the pool "sandbox", so that sandboxes scale apart from other runners. It follows
// the live events agent.*.*.session.* and publishes what code prints while it runs on
// stream.<agent>.<session>, lossy by design. Files that code leaves in /workspace/out,
// and data too large for a result, are stored in the object store "artifacts" under
// <agent>/<session>/<call>/<attempt>. What does not fit its quotas (bus.ArtifactLimits) is
// left out, and the result says so.
//
// # Sessions
//
// A session has one sandbox, leased from a pool of clean ones (package pool) by its first
// call. Its calls go one after the other, each in a fresh process; its files last. The
// lease ends when the session is reset or locked, when it was idle for [Config].Idle,
// when the sandbox breaks, or when its place is needed: of the principal with the most sandboxes,
// the idle one that was not used for the longest time. Principals (the agent, and who wrote
// the turn's input) share the sandboxes as package pool says. A call
// that then comes gets a new sandbox, and its result says so with the reason ("notice"),
// unless the session itself was reset. With lifecycle "call" a sandbox is for one call.
//
// Which instance has a session's sandbox is core's to remember (tool.Spec.Sticky): a call
// says of which lease it is, and which instance ran the one before it
// (executor.ToolCall.Lease and Before; ADR 11).
//
// # Guarantee
//
// A call's attempt is carried out at most once. A sandbox is never used for two sessions,
// and nothing of a model ever runs outside of one: without a driver every call fails
// with what to install. A program that raises, does not parse or ends with an exit code
// other than 0 is a failure (tool_failed), so that a plan skips what depends on it. So is
// a run that was out of time, was killed or broke its sandbox. The result has what was
// printed and the files that were left until then.
//
// # Failure
//
// A sandbox that breaks in a call is that call's failure, never outcome_unknown: it did
// run. When the service dies, its sandboxes are gone within the reaper's period, and the
// session's next call gets a new one elsewhere. The end of the context drains: what
// runs is finished, then all sandboxes are destroyed.
package sandbox
