// Package decide is the core as a pure function: state and trigger in, one
// commit out. It knows no NATS, no clock and no randomness; what it needs of
// the world (the time, nonces, who is alive, what hooks and policy say) it gets
// through [Env], and everything that matters of it is written into the commit.
//
// State is the fold of a session's commits ([State.Apply]). Deciding builds
// events one by one and folds each into a copy of the state with the very same
// code, so what is rebuilt from the log is what was decided, bit for bit: every
// commit carries the digest of the state after it.
//
// The turn protocol (rules 1–17) is modelled in services/core/model, which is
// exhausted in CI. Whoever changes one changes both.
package decide
