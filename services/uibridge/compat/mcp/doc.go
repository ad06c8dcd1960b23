// Package mcp serves the Model Context Protocol at [Path] over streamable HTTP
// (modelcontextprotocol.io), so that other agents and their hosts can use the agents of a system.
//
// # Eras
//
// 2026-07-28 has no sessions: each request is complete. Earlier versions, from 2024-11-05 to
// 2025-11-25, begin a session of the protocol with initialize; it lives in the bridge that began it,
// belongs to the principal that began it, and ends when it is not used. Nothing of a conversation
// depends on it: that is in sessions of the agent.
//
// # Mapping
//
//	ask            an input; the call ends with its turn
//	wait           follows a turn that ask has left
//	cancel         a cancel
//	list_sessions, read_session, list_tools
//
//	skandha://sessions/{agent}/{session}                   a session, as read_session returns it
//	skandha://sessions/{agent}/{session}/artifacts/{id}    a file; the id is its name in base64url
//
//	the model is asked, a tool runs   notifications/progress, if the call has a progress token
//	approval is required              a form with approve and deny, if the client can show one and the
//	                                  token may approve: elicitation/create in the earlier era, and
//	                                  an input_required result in the later one. Else, or if the user
//	                                  dismisses it, the result is "waiting"
//	the call of ask is cancelled      a cancel of the turn. In the later era a lost connection is a
//	                                  cancel, as its specification says, and in the earlier one not
//
// The agent's tools are listed and cannot be called: core makes no call that is not one of a turn,
// where policy, hooks and people judge it.
//
// # Handles
//
// A turn's handle is its place in the log and the id of its input: agent, session, the commit in which
// core took up the input, and the id, with dots between them. Every bridge finds the turn with it and
// sees there who its writer is. For everybody else there is no such turn. A handle is the state that an
// input_required result carries, and the id of a task.
//
// # Tasks
//
// To clients that declare io.modelcontextprotocol/tasks (2026-07-28), ask returns a task as soon as the
// input is in the log. tasks/get, tasks/update and tasks/cancel work at any bridge; the result of a
// turn that has ended can be fetched for [Config].TaskLife after its input. A turn that fails is a completed
// task whose result says so. Status notifications (taskIds of subscriptions/listen) are not offered.
//
// # Failure
//
// The errors of tools are results with isError, "<code>: <text>" with a code of package contract. Other errors
// are those of JSON-RPC, with {code, message, …} as data. What a principal may not see is answered
// as what does not exist. When a bridge stops, open calls end with the code unavailable and their turns
// continue; read_session shows them.
package mcp
