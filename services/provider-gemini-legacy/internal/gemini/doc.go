// Package gemini asks Google's models with github.com/google/generative-ai-go, the SDK that
// Google ended in 2025.
//
// The SDK reads an answer into types that have no place for what newer models add: the
// signatures of parts (thoughtSignature), the ids of function calls, thoughts, and the tokens
// that they cost. Models since Gemini 3 refuse a tool loop without the first two. This package
// therefore puts an [http.RoundTripper] under the SDK:
//
//   - From an answer it keeps every part as it arrived, byte for byte, and gives the SDK the
//     text and the names of the calls (tape.go).
//   - In a request it replaces the SDK's parts, by their position, with those that were kept
//     (splice.go). It also adds what the SDK cannot say: the ids of results and the schemas
//     of tools.
//
// Between the two, the kept parts are in the provider_state of the contract (state.go). A
// signature is never invented and never gets to another part. A message that a hook has
// changed, and one of another provider, is sent without signatures. Its calls are sent as text
// while the turn is not answered, because the API may refuse calls without a signature.
//
// A request is sent once: the SDK's retries do not apply, because the RoundTripper turns a
// status that is not 200 into an error, and core repeats what is worth it. Redirects are not
// followed. The SDK does not get the API key; the RoundTripper adds it.
package gemini
