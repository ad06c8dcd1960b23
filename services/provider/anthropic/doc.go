// Package anthropic asks Claude models through Anthropic's Messages API, with Anthropic's SDK.
//
// Requests are built here as JSON, not with the SDK's types, which reorder the properties of
// schemas. The same conversation is always the same bytes, so that the API finds its
// beginning in the prompt cache; up to four blocks are marked for it (cache.go).
//
// A model that thinks wants its thinking blocks back unchanged, in their order among its
// texts and calls. They are kept in provider_state (state.go), byte for byte, and go only to
// the model that wrote them. A message that a hook has changed is sent without them. Newer
// models refuse blocks when something before them has changed, such as the system prompt or
// the tools; the request is then repeated with those of the open turn alone, and then without
// any.
//
// [Config].ThinkingTokens asks for thinking. Models up to Claude 4.6 get that budget; they
// want every open tool loop to begin with a thinking block, and think about nothing in a loop
// that another model began. Later models decide themselves how much to think, think by
// default, and have no temperature.
//
// Failures are mapped to the codes of the contract; the key appears in none of them. The SDK
// takes nothing from the environment, traces nothing and retries nothing: package provider
// and package retry do. Redirects are not followed.
package anthropic
