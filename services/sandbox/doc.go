// Package sandbox runs the code of models in isolation. It is the executor of
// python:execute, shell:execute and the tools of the group sandbox_fs.
//
// # Subjects
//
// The service is an executor of kind runner (see services/internal/executor/engine) with its own
// slots, the pool "sandbox", so that sandboxes scale separately from other runners. It
// follows the live events agent.*.*.session.* and publishes what code prints while it runs
// on stream.<agent>.<session>, lossy by design. Files that code leaves in /workspace/out,
// and data too large for a result, are stored in the object store "artifacts" under
// <agent>/<session>/<call>/<attempt>. Whatever exceeds its quotas (bus.ArtifactLimits) is
// left out, and the result reports it. A picture or PDF that sandbox_fs:read reads is stored
// there too, and named in the result's files, so that the model sees it.
//
// # Sessions
//
// A session has one sandbox. Its first call leases it from a pool of clean ones (package
// pool). The session's calls run one after the other, each in a fresh process; its files
// persist. The lease ends when the session is reset or locked, when it has been idle for
// [Config].Idle, when the sandbox breaks, or when another session needs the place. In the
// last case the principal with the most sandboxes loses the one that has been idle longest.
// Principals (the agent, and the writer of the turn's input) share the sandboxes as package
// pool describes. The next call gets a new sandbox, and its result gives the reason
// ("notice"), unless the session itself was reset. With lifecycle "call" a sandbox is used
// for one call only.
//
// After each call that may have changed files, the workspace is saved in the bucket "files"
// (package snapshot), small changes before the result. The next sandbox of the session gets
// these files before a call runs in it, also at another instance; the notice says after which
// call they were saved. If they cannot be read now, the call does not run (ADR 51).
//
// Core remembers which instance has a session's sandbox (tool.Spec.Sticky): a call names
// its lease, and the instance that ran the previous call (executor.ToolCall.Lease and
// Before; ADR 11).
//
// # Guarantee
//
// A call's attempt is carried out at most once. A sandbox is never used for two sessions,
// and a model's code never runs outside of a sandbox: without a driver every call fails and
// reports what to install. A program that raises, does not parse or exits with a code
// other than 0 is a failure (tool_failed), so that a plan skips whatever depends on it. So
// is a run that timed out, was killed or broke its sandbox. The result has the output and
// the files up to that point.
//
// # Failure
//
// A sandbox that breaks during a call fails that call with tool_failed, never with
// outcome_unknown: the call did run. When the service dies, its sandboxes are removed
// within the reaper's period, and the session's next call gets a new one elsewhere, with the
// saved files. When the bucket is full or away, calls run on and their files are saved later.
// When the context ends, the service drains: running calls finish, what is not saved is saved,
// for at most ten seconds, then all sandboxes are destroyed.
package sandbox
