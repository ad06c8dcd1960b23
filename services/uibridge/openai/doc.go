// Package openai is the door for clients of OpenAI's chat completions API: an agent is
// a model that they can talk to.
//
//	POST /v1/chat/completions   ask an agent; {stream: true} for server-sent events
//	GET  /v1/models             the agents that the token may reach
//	GET  /v1/models/{id}
//
// Other paths of OpenAI's API, such as /v1/responses and /v1/embeddings, are answered with
// 404 unknown_url.
//
//	client := openai.NewClient(option.WithBaseURL("http://localhost:7070/v1"), option.WithAPIKey(token))
//
// The model is an agent's name, or skandha/<agent>. The last message is a user's, and
// what the agent is told.
//
// # Which session
//
// A chat completion carries the whole conversation; a session of Skandha is durable and
// has it. The session is
//
//   - the one that the header X-Skandha-Session or metadata.session names;
//   - else the one that this door has answered from last with exactly the messages
//     before the last one, to the same principal: a client that continues a conversation
//     continues its session ([Config.Conversations] are remembered, in memory);
//   - else a new one.
//
// The answer's header X-Skandha-Session names it. In a session with nothing in it yet,
// the messages before the last one, system and developer messages too, stand before the
// text, between <earlier> and </earlier>; the agent has instructions of its own, and
// takes those as what a user says. Otherwise they are left out: the session knows them.
// Asking again what was asked before (another answer to the same message) is a new
// session, since the old one has gone on.
//
// A last message that is a slash command, such as /help or /reset, is one: a word of
// letters alone after the slash. Any other text that begins with a slash is text.
//
// Idempotency-Key is the input's id: a request that is sent again with it is not taken
// again, and gets the answer of the first.
//
// # The answer
//
// The content is what the agent says in the turn: the text of each answer of the model,
// joined by blank lines, what it says beside calling tools too. What the tools do is
// not text; other doors tell it. Usage is that of the whole turn.
//
// A stream passes on the text while it is written, and what it has passed on when it
// says finish_reason is the content that the log has, and that a request without stream
// gets. Two things could break that: a provider may fail in the middle, so that the
// text is written anew, and a hook may change it. What was sent can't be taken back. So
// the new text is held back until it is whole; if it begins with what was sent, the
// rest follows, and if not, the stream ends with the error text_replaced, without
// finish_reason. The turn goes on, and Idempotency-Key gets its answer. A client that
// would rather wait says metadata.deltas: "off": each text is sent when it is in the log.
//
// # Waiting for people
//
// While a person must approve a call, the request waits, and comments keep a stream
// alive. Without stream it waits for a minute ([Config.DecisionWait]); then it is answered
// with 409 confirmation_required, which names the session and where to decide. The turn
// goes on, and the same request with its Idempotency-Key gets its answer. A stream says in reasoning_content, which is no content, what it waits for and
// in which session; anybody answers in another UI. With metadata.confirmations: "deny"
// every such call of the turn is denied at once instead; the token needs the right to
// approve.
//
// A client that goes away ends the request and not the turn: what was taken goes on and
// stands in the session. With metadata.cancel_on_disconnect: "true" it is cancelled.
//
// # What is not done
//
// These are refused with 400, naming the parameter: n other than 1, tools, functions
// and a tool_choice that wants one (the agent's tools are on the bus), messages of tools,
// logprobs, audio, images and files, a response_format other than text, stop, logit_bias,
// web_search_options. These are taken and do nothing, since the agent's configuration
// decides: temperature, top_p, max_tokens, max_completion_tokens, presence_penalty,
// frequency_penalty, seed, user, store, service_tier, reasoning_effort, verbosity,
// parallel_tool_calls, prediction, and whatever is not known.
//
// # Errors
//
// {"error": {message, type, param, code}}, in a stream as its last event. Before the
// input is taken, the status is the [contract.Error]'s; after it, x-should-retry: false
// keeps clients from saying it twice. How a turn failed is the code ([event.FailCode]).
package openai
