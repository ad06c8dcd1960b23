// Package embedding computes embeddings of texts through the APIs of OpenAI (which vLLM,
// llama.cpp and Ollama also have), of Gemini (batchEmbedContents) and of Ollama (/api/embed).
//
// The three requests are sent without the vendors' SDKs: those read null, which servers send
// for a number that is not finite, as 0, and one of them prints what it cannot read. Redirects
// are not followed.
//
// # Guarantee
//
// An answer holds one vector per text, in order, each of length 1 and of the same dimension.
// Anything else is an error, and so is an answer of more than 8 MiB or a server that is silent
// for too long. What the API counts is reported; what it does not count is unknown.
//
// # Failure
//
// Failures have the codes of the contract, and none holds the key. Those that may be transient
// are tried again by package retry, which also keeps the circuit breaker of the API.
package embedding
