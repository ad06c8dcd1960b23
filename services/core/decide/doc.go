// Package decide implements the core's decisions as pure functions: they take a
// state and a trigger and return one commit. The package uses no NATS, no clock and
// no randomness. It reads the time, nonces, the live executors and the answers of
// hooks and policy through [Env], and writes everything that matters into the commit.
//
// State is the fold of a session's commits ([State.Apply]). Deciding builds
// events one by one and folds each into a copy of the state with the same code, so
// the state rebuilt from the log equals the decided state bit for bit. Every
// commit carries the digest of the state after it.
//
// Tools are matched and evaluated by [Env.Matcher]. If the guide says so, the decision engine
// (package planner/engine) chooses them; what it asks a model is a question of the turn, like
// a summary.
//
// services/test/model models the turn protocol (rules 1–17), and CI explores the
// model exhaustively. If you change one, change the other.
package decide
