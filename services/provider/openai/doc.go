// Package openai asks models through the chat completions API: OpenAI's own, and
// that of every server which speaks it (vLLM, llama.cpp, Ollama, gateways).
//
// Answers are streamed. Pieces of tool calls are put together by their index;
// tool names travel as [subject.Encode] writes them, since the API forbids the
// colon, and a name the model invented is passed on as it is. Arguments that are
// no JSON are kept as a JSON string, so that core can show the model what it
// wrote. Everything is bounded: the text, the calls, the bytes on the wire and
// the silence between two of them.
//
// Failures become the codes of the contract, the key appears in none of them.
// The SDK reads no environment and retries nothing: package selection and
// package retry do. Redirects are not followed.
package openai
