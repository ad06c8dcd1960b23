// Package acp serves editors that speak ACP, the Agent Client Protocol
// (agentclientprotocol.com), version 1: JSON-RPC 2.0, one message a line, on the standard input
// and output of a process that the editor starts.
//
// # Mapping
//
// A session of ACP is a session of the agent with the same name. It is durable: what an editor
// sees is the log, and anybody else may use the session at the same time.
//
//	initialize                 connects to the system; capabilities are what follows
//	session/new                a fresh name
//	session/load               replays the log as session/update, then continues with what happens
//	session/resume             the same without the replay
//	session/list               the agent's sessions, latest first; they are bound to no directory
//	session/prompt             an input; a text that begins with "/" is a slash command
//	session/cancel             a cancel of each prompt that the client waits for
//	session/close              the same, and the session is followed no more
//	$/cancel_request           of a prompt: a cancel of it
//
//	an input of somebody else  user_message_chunk
//	the model thinks, decides  agent_thought_chunk
//	the model writes           agent_message_chunk; messageId changes with each answer of the model
//	a plan with several steps  plan
//	a call is proposed         tool_call, pending, with a diff if it edits a file
//	approval is required       session/request_permission; if somebody else answers first or the
//	                           request expires, $/cancel_request withdraws it
//	an executor has the call   tool_call_update, in_progress, with the final arguments
//	a tool prints              tool_call_update with the end of the output
//	the call's result          tool_call_update, completed or failed
//
// Inputs of one session are queued: a prompt that comes while another one runs is answered when
// its own turn has ended. The end of a turn is the answer to its prompt:
//
//	recorded                               end_turn
//	cancelled, interrupted, reset          cancelled
//	limit_tokens                           max_tokens, and the reason as a message
//	limit_rounds                           max_turn_requests, and the reason as a message
//	denied, dropped                        refusal, and the reason as a message
//	any other failure                      an error: data.code is the [event.FailCode]
//
// An error's data is {code, message, …} with a code of package contract or of [event.FailCode].
//
// What is left out is refused or reported, never ignored: servers for MCP that the client names are
// not used, and a message in the session says so; audio is refused; there are no modes.
//
// # Text
//
// Deltas are lossy and a model's attempt may be restarted, but ACP cannot take text back. After
// a gap, or when the text begins again, nothing more is sent until the log has the whole text;
// then the rest follows. Only if the text has changed is it sent again, as another message.
//
// # Failure
//
// While the bus is away, updates stop; they continue where they were, without loss or
// repetition. A message that is not JSON, too large, a batch, or unknown gets the error of
// JSON-RPC. When the client disappears, [Serve] ends, and turns that have begun continue;
// session/load shows them.
package acp
