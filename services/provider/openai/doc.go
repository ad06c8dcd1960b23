// Package openai asks models through the chat completions API: OpenAI's, and
// that of every compatible server (vLLM, llama.cpp, Ollama, gateways).
//
// Answers are streamed. Pieces of tool calls are joined by their index;
// tool names are sent as [subject.Encode] writes them, since the API forbids the
// colon, and a name the model invented is passed on as it is. Arguments that are
// not JSON are kept as a JSON string, so that core can show the model what it
// wrote. Everything is bounded: the text, the calls, the bytes on the wire and
// the silence between two of them.
//
// Failures are mapped to the codes of the contract; the key appears in none of them.
// The SDK reads no environment and retries nothing: package selection and
// package retry do. Redirects are not followed.
package openai
