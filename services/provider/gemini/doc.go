// Package gemini asks Google's models through the Gemini API, with Google's SDK.
//
// The SDK decodes a part of an answer into Go types, which turn numbers into float64 and
// drop fields that they do not know. A model that reasons wants its parts back exactly as
// they were, with their signatures, so this package keeps every part as it arrived
// (tape.go), and sends it back from provider_state: a signature is never made up, and never
// moves to another part. A message that a hook has changed is sent without them. What an
// answer cost is what the API says, thoughts included.
//
// Calls of a turn that another provider began have no signature, and the API may refuse
// them. They are sent as text until the turn is answered.
//
// Pictures, PDF documents, audio and video are sent beside the text; those of results follow
// all results of parallel calls. Beside tools, models before Gemini 3 refuse a schema of the
// answer, so then the system prompt asks for it.
//
// Failures are mapped to the codes of the contract; the key appears in none of them. The
// SDK takes nothing from the environment and retries nothing: package provider and package
// retry do.
package gemini
