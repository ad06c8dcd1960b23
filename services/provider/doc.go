// Package provider is the provider service: it forwards core's requests to
// language models. It is an executor (package services/internal/executor/engine) whose
// work is one adapter's Generate.
//
// # Subjects
//
// Consumed: provider.<instance> and discover.provider, by the executor engine; the
// registry of plugins (services/internal/registry).
// Produced: announce.provider.<instance> and the answers under
// reply.<caller>.<instance>.…, by the engine; and by this package
// stream.<agent>.<session>: token deltas, CloudEvents of type
// skandha.stream.delta.v1 that carry {plan, attempt, n, text, reasoning}; and
// requests to plugins on llm.<plugin>.generate (services/internal/plugincall).
//
// It also computes embeddings, with the model that [SelectEmbedder] chooses, for any service
// that asks on service.embedder.embed, service.embedder.status or service.embedder.absent (package providerapi);
// and in the same way it turns speech into text and text into speech, on service.transcriber.<verb> and
// service.speaker.<verb>, with what [SelectTranscriber] and [SelectSpeaker] choose (package speech).
//
// # Guarantee and order
//
// A (plan, attempt) is sent to the model at most once. The bus may lose deltas, and
// nothing waits for them. Within an attempt they are numbered from 0, this service
// skips and repeats none, at most one message is sent per [Config].FlushEvery, and
// the last one is sent before the answer. A new attempt begins the text again; the
// committed text replaces it.
//
// # Failure
//
// An adapter retries failures that may be transient while none of its text was seen;
// after that, core decides. This package checks and bounds the answer of every
// adapter once more: one with neither text nor calls is garbage, one that does not
// end is cut off as too_long. A panic in an adapter is the failure of that attempt.
//
// Plugins that are providers are announced after the adapters and asked only by
// name. They do not stream. A plugin that is missing, leaves during a request or
// loses its connection counts as unavailable, so that core asks again; an answer that
// is not a valid reply is garbage.
//
// [Select] chooses the adapters and returns the reason.
package provider
