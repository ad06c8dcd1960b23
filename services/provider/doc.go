// Package provider is the provider service: it answers core's questions to
// language models. It is an executor (package services/internal/executor), whose
// work is one adapter's Generate.
//
// # Subjects
//
// Consumed: provider.<instance> and discover.provider, by the executor engine; the
// registry of plugins (services/internal/registry).
// Produced: announce.provider.<instance> and the answers under
// reply.<instance>.<caller>.<n>, by the engine; and by this package
// stream.<agent>.<session>: token deltas, CloudEvents of type
// skandha.stream.delta.v1 that carry {plan, attempt, n, text, reasoning}; and
// questions to plugins on llm.<plugin>.generate (services/internal/plugincall).
//
// # Guarantee and order
//
// A (plan, attempt) is asked at most once. Deltas may be lost by the bus, and
// nothing waits for them. Within an attempt they are numbered from 0, no piece is
// left out or repeated on this side, at most one message goes out per
// [Config].FlushEvery, and the last one goes out before the answer. A new attempt
// begins the text again; the committed text replaces it.
//
// # Failure
//
// An adapter retries what is worth it while none of its text was seen; after
// that, core decides. Every answer is bounded and checked here once more, whatever
// the adapter: one with neither text nor calls is garbage, one that does not end
// is cut off as too_long. A panic in an adapter is the failure of that attempt.
//
// Plugins that are providers are announced after the adapters and asked only by
// name. They do not stream. Whoever is not there, or goes in the middle, or whose
// connection is lost is unavailable, so that core asks again; an answer that is no
// reply is garbage.
//
// [Select] chooses the adapters and says why.
package provider
