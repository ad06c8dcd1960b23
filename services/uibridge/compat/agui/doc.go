// Package agui serves clients of AG-UI, the Agent User Interaction protocol
// (docs.ag-ui.com): a run of an agent is one POST, answered with server-sent events.
//
//	POST /v1/agui/{agent}   RunAgentInput -> text/event-stream, one AG-UI event each
//
//	$ curl -N -H "Authorization: Bearer $TOKEN" localhost:7070/v1/agui/main --json '{
//	    "threadId": "t1", "runId": "r1", "state": {}, "tools": [], "context": [], "forwardedProps": {},
//	    "messages": [{"id": "m1", "role": "user", "content": "hello"}]}'
//
// # Mapping
//
// A thread is a session of the agent: of the same name if that is a valid session name,
// else with an encoded name ([SessionOf]). The session is durable and contains the
// conversation, so only the last of the messages counts, which must be a user's; the
// earlier ones are the client's copy. Entries of context are appended to its text. The
// run's id is the input's id: a run that is sent again is not accepted again, but replays
// the same turn from its beginning.
//
//	the input was accepted        RUN_STARTED, STATE_SNAPSHOT {…state, skandha: {agent, session, state}}
//	the agent's state changes     STATE_DELTA of /skandha/state
//	core asks the model           STEP_STARTED "plan <round>" … STEP_FINISHED
//	the model thinks              REASONING_START, REASONING_MESSAGE_START/CONTENT/END, REASONING_END
//	the model writes              TEXT_MESSAGE_START/CONTENT/END, one message for each answer of the model
//	a tool is called              TOOL_CALL_START/ARGS/END, with the final arguments, then TOOL_CALL_RESULT
//	a tool prints                 CUSTOM skandha.tool_output {call, stream, text}
//	approval is required          CUSTOM skandha.confirmation, below
//	the request was answered      CUSTOM skandha.confirmation_resolved {confirmationId, outcome, by, …}
//	an answer was refused         CUSTOM skandha.audit
//	the turn ends                 RUN_FINISHED {result: {text, turn, sequence}, usage, outcome}, or RUN_ERROR {message, code}
//
// If the model fails in the middle of a text, the text is written again as another message;
// then MESSAGES_SNAPSHOT lists, at the end, the messages that count. The text of a message
// is what is in the log, whichever deltas were lost. REASONING_* replaces the older
// THINKING_*.
//
// # Approvals
//
// When a person must approve a call, the run ends: RUN_FINISHED has the outcome {type:
// "interrupt", interrupts: […]}. A run of the same thread with resume, answering all of
// them, continues the turn: resume: [{interruptId: <confirmationId>, status: "resolved",
// payload: {approved, hash?, reason?, always?}}]; "cancelled" denies. A principal to whom
// this handler has sent the request may leave out the hash. The turn itself waits, and
// anybody may answer in another UI: then the same run, sent again, returns the rest of the
// turn.
//
// Before that, skandha.confirmation carries the fields of onToolCallRequest: {toolName,
// args, confirmationId, hash, security_warning, expiresAt, always}.
//
// A client without interrupts sends forwardedProps: {"skandha": {"interrupts": false}}. The
// run then stays open, and continues when anybody answers, in any UI. This client can
// answer with
//
//   - another run of the same thread with resume: [{interruptId: <confirmationId>, status:
//     "resolved", payload: {approved, hash?, reason?, always?}}]; "cancelled" denies. It returns the
//     rest of the turn, as does the first run if it is still open.
//   - POST /v1/agents/{agent}/sessions/{session}/confirmations {confirmationId, hash, approved}.
//
// # Further options
//
// forwardedProps.skandha.mode "interrupt" first ends the session's running turn. Tools of
// the client (tools) are refused with RUN_ERROR unsupported_tools: the agent's tools are on
// the bus, for every UI, and policy applies to them there.
//
// # Failure
//
// An invalid request is answered with a [contract.Error] and its status. Later errors end
// the stream with RUN_ERROR; its code is the contract's or the turn's [event.FailCode]. A
// client that disconnects ends the stream but not the turn: the accepted input continues,
// with its costs, and the same run, sent again, replays it. To stop the turn, send POST
// …/cancels {inputId: <runId>}.
//
// The principal needs the rights "see" and "talk", and "approve" to answer.
package agui
