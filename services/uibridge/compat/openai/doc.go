// Package openai serves clients of OpenAI's chat completions API. To them, an agent is a
// model.
//
//	POST /v1/chat/completions   ask an agent; {stream: true} for server-sent events
//	GET  /v1/models             the agents that the token may access
//	GET  /v1/models/{id}
//	POST /v1/audio/transcriptions   the text of speech, from the configured transcriber
//	POST /v1/audio/speech           a text as speech, from the configured speaker
//
// Other paths of OpenAI's API, such as /v1/responses and /v1/embeddings, are answered with
// 404 unknown_url.
//
//	client := openai.NewClient(option.WithBaseURL("http://localhost:7070/v1"), option.WithAPIKey(token))
//
// The model is an agent's name, or skandha/<agent>. The last message must be a user's; it
// is the agent's input.
//
// # Sessions
//
// A chat completion request carries the whole conversation, which a durable session of
// Skandha already contains. The session is
//
//   - the one that the header X-Skandha-Session or metadata.session names;
//   - else the last one from which this handler answered exactly the messages
//     before the last one, to the same principal: a client that continues a conversation
//     continues its session ([Config.Conversations] are remembered, in memory);
//   - else a new one.
//
// The answer's header X-Skandha-Session names the session. In an empty session, the
// messages before the last one, system and developer messages too, precede the text,
// between <earlier> and </earlier>. The agent has its own instructions, and treats those
// messages as a user's words. Otherwise they are left out, because the session already
// contains them. Asking for another answer to an earlier message starts a new session,
// because the old one has continued.
//
// A last message that begins with a slash and one word of letters, such as /help or /reset,
// is a slash command. Any other text that begins with a slash is text.
//
// Idempotency-Key is the input's id: a request that is sent again with the same key is not
// accepted again, and gets the first one's answer.
//
// # The answer
//
// The content is the agent's text in the turn: the text of each answer of the model, joined
// by blank lines, including text beside tool calls. What tools do is not part of it; other
// transports show that. Usage is that of the whole turn.
//
// A stream passes on the text while it is written. At finish_reason, the text that was
// passed on equals the content in the log, which a request without stream gets. Two things
// could break that: a provider may fail in the middle, so that the text is written again,
// and a hook may change it. Text that was sent cannot be withdrawn. So the new text is held
// back until it is complete; if it begins with what was sent, the rest follows, and if not,
// the stream ends with the error text_replaced, without finish_reason. The turn continues,
// and Idempotency-Key gets its answer. A client that prefers to wait sends metadata.deltas:
// "off": then each text is sent when it is in the log.
//
// # Approvals
//
// While a person must approve a call, the request waits, and comments keep a stream alive.
// Without stream it waits for a minute ([Config.DecisionWait]); then it is answered with
// 409 confirmation_required, which names the session and where to decide. The turn
// continues, and the same request with its Idempotency-Key gets its answer. A stream
// reports in reasoning_content, which is not content, what it waits for and in which
// session; anybody may answer in another UI. With metadata.confirmations: "deny" every such
// call of the turn is denied at once instead; this needs the token's right "approve".
//
// A client that disconnects ends the request but not the turn: the accepted input
// continues, and its result is in the session. With metadata.cancel_on_disconnect: "true"
// the turn is cancelled.
//
// # Unsupported parameters
//
// These are refused with 400, naming the parameter: n other than 1, tools, functions and a
// tool_choice that requires one (the agent's tools are on the bus), messages of tools,
// logprobs, audio, images and files, a response_format other than text, stop, logit_bias,
// web_search_options. These are accepted without effect, because the agent's configuration
// decides: temperature, top_p, max_tokens, max_completion_tokens, presence_penalty,
// frequency_penalty, seed, user, store, service_tier, reasoning_effort, verbosity,
// parallel_tool_calls, prediction, and unknown parameters.
//
// # Speech
//
// The configuration decides which model hears and speaks: the field model is accepted and has no
// effect, and so are fields that say how a transcript is made or how speech should sound. A transcript
// has response_format json, text or verbose_json, without segments; the format of speech is that of the
// speaker, as Content-Type says. A voice is the speaker's, too. Without a transcriber or a speaker the
// answer is 404 with the code no_transcriber or no_speaker.
//
// # Errors
//
// {"error": {message, type, param, code}}, in a stream as its last event. Before the input
// is accepted, the status is the [contract.Error]'s; after that, x-should-retry: false
// keeps clients from sending it twice. If a turn fails, the code is its [event.FailCode].
package openai
