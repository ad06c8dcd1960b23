// Package openai asks models through OpenAI's two APIs: chat completions, which every
// compatible server has (vLLM, llama.cpp, Ollama, gateways), and responses, OpenAI's own.
//
// With responses, nothing is stored at the server. The items of an answer, with the
// encrypted reasoning of the model, are kept in provider_state and go back as they came. A
// message that a hook has changed, or that another server or API wrote, is built anew from
// its text and calls. A model that returns no encrypted reasoning is asked without.
//
// Answers are streamed. Pieces of tool calls are joined by their index;
// tool names are sent as [subject.Encode] writes them, since the API forbids the
// colon, and a name the model invented is passed on as it is. Arguments that are
// not JSON are kept as a JSON string, so that core can show the model what it
// wrote. Everything is bounded: the text, the calls, the bytes on the wire and
// the silence between two of them.
//
// Pictures and PDF documents are sent beside the text. In chat completions the result of a
// call is text, so its files follow in a message of the user, which names the call.
//
// Failures are mapped to the codes of the contract; the key appears in none of them.
// The SDK reads no environment and retries nothing: package selection and
// package retry do. Redirects are not followed.
package openai
