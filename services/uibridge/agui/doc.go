// Package agui is the door for clients of AG-UI, the Agent User Interaction protocol
// (docs.ag-ui.com): a run of an agent is one POST, answered with server-sent events.
//
//	POST /v1/agui/{agent}   RunAgentInput -> text/event-stream, one AG-UI event each
//
//	$ curl -N -H "Authorization: Bearer $TOKEN" localhost:7070/v1/agui/main --json '{
//	    "threadId": "t1", "runId": "r1", "state": {}, "tools": [], "context": [], "forwardedProps": {},
//	    "messages": [{"id": "m1", "role": "user", "content": "hello"}]}'
//
// # What becomes what
//
// The thread is a session of the agent: of the same name if that can be one, else under
// a name of its own ([SessionOf]). The session is durable and knows the conversation, so
// of messages only the last one counts, a user's; those before it are the client's copy.
// Entries of context are put after its text. The run's id is the input's: a run that is
// sent again is not taken again, and tells the same turn from its beginning.
//
//	the input was taken           RUN_STARTED, STATE_SNAPSHOT {…state, skandha: {agent, session, state}}
//	the agent does something else STATE_DELTA of /skandha/state
//	the model is asked            STEP_STARTED "plan <round>" … STEP_FINISHED
//	it thinks                     REASONING_START, REASONING_MESSAGE_START/CONTENT/END, REASONING_END
//	it writes                     TEXT_MESSAGE_START/CONTENT/END, one message for each answer of the model
//	a tool is called              TOOL_CALL_START/ARGS/END, with the arguments that run, then TOOL_CALL_RESULT
//	a tool prints                 CUSTOM skandha.tool_output {call, stream, text}
//	a person must approve         CUSTOM skandha.confirmation, below
//	somebody has answered         CUSTOM skandha.confirmation_resolved {confirmationId, outcome, by, …}
//	an answer was refused         CUSTOM skandha.audit
//	the turn is over              RUN_FINISHED {result: {text, turn, sequence}, usage, outcome}, or RUN_ERROR {message, code}
//
// A text whose model failed in the middle is written anew, as another message; then
// MESSAGES_SNAPSHOT tells, at the end, which messages count. The text of a message is
// what is in the log, whichever deltas were lost. REASONING_* is what was THINKING_*.
//
// # Approving
//
// When a person is asked, the run ends: RUN_FINISHED has the outcome {type: "interrupt",
// interrupts: […]}, and a run of the same thread with resume, for all of them, goes on:
// resume: [{interruptId: <confirmationId>, status: "resolved", payload: {approved, hash?,
// reason?, always?}}]; "cancelled" denies. The hash may be left out by a principal to whom
// this door has shown the request. The turn itself waits, and anybody may answer in
// another UI: the same run sent again tells the rest then.
//
// Before it, skandha.confirmation carries what onToolCallRequest does: {toolName, args,
// confirmationId, hash, security_warning, expiresAt, always}.
//
// A client without interrupts says forwardedProps: {"skandha": {"interrupts": false}}. The
// run stays open then, and goes on when anybody answers, in any UI; this client by
//
//   - another run of the same thread with resume: [{interruptId: <confirmationId>, status:
//     "resolved", payload: {approved, hash?, reason?, always?}}]; "cancelled" denies. It tells the
//     rest of the turn, as the first one does if it is still open.
//   - POST /v1/agents/{agent}/sessions/{session}/confirmations {confirmationId, hash, approved}.
//
// # What else
//
// forwardedProps.skandha.mode "interrupt" ends what runs in the session first. Tools
// of the client (tools) are refused with RUN_ERROR unsupported_tools: the agent's tools
// are on the bus, for every UI, and what they may do is decided there.
//
// # When something fails
//
// What is wrong with the request itself is answered with a [contract.Error] and its
// status. Later, RUN_ERROR is the last event; its code is the contract's or the turn's
// [event.FailCode]. A client that goes away ends the stream and not the turn: what was
// taken goes on, costs what it costs, and the same run sent again tells it. Who wants it
// to stop says so: POST …/cancels {inputId: <runId>}.
//
// The principal needs the rights to see and to talk; to answer, that to approve.
package agui
