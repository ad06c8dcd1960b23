// Package rpc is the door that UIs keep a WebSocket to: JSON-RPC 2.0 at GET /v1/ws, by
// the names of the specification.
//
// # Connecting
//
// The parameters of the URL are agent, session, after, html=1, commits=1 and ui (what
// the UI calls itself, for people who see who answered). All may be left out: the agent
// is then [Config.Agent], or the first that the token may reach, and the session a
// fresh one. Who it is was decided before, by package access; the subprotocol
// skandha.v1 may be asked for. The first thing that is told is where one is:
//
//	← {"jsonrpc":"2.0","method":"onAttached","params":{"agent":"main","session":"20261121-…","after":"0","until":"0","state":"waiting_for_input"}}
//	→ {"jsonrpc":"2.0","id":1,"method":"submitUserInput","params":["list the files"]}
//	← {"jsonrpc":"2.0","id":1,"result":{"agent":"main","session":"20261121-…","sequence":12,"turn":"…"}}
//	← {"jsonrpc":"2.0","method":"onAgentStateChange","params":{"id":"13.1","agent":"main",…,"state":"thinking"}}
//	← {"jsonrpc":"2.0","method":"onToolCallRequest","params":{"id":"15.2",…,"toolName":"fs:list","args":{…},"confirmationId":"…","hash":"…"}}
//	→ {"jsonrpc":"2.0","id":2,"method":"provideConfirmation","params":["…",true]}
//	← {"jsonrpc":"2.0","id":2,"result":{…}}
//	← {"jsonrpc":"2.0","method":"onNewMessage","params":{"id":"17.3",…,"content":"…","format":"markdown"}}
//	← {"jsonrpc":"2.0","method":"onReadyForInput","params":{"id":"17.5",…}}
//
// The params of a notification that stands in the log carry its place as id. Whoever
// connects with ?after=<the last id>, or calls attach with it, is told exactly what
// follows. A token that may not see is told onDropped instead of onAttached, and may
// still call what it may.
//
// # Methods
//
// Parameters are named, or in this order ([request.Desk.Call]):
//
//	attach               agent?, session?, after?, html?, commits?  → {agent, session}
//	detach                                                           → {}
//	submitUserInput      input, id?, mode?, agent?, session?         → Receipt
//	provideConfirmation  confirmationId, approved, hash?, reason?, always?, agent?, session? → Receipt
//	cancelTurn           sequence?, inputId?, reason?, agent?, session? → Receipt
//	runCommand           name, args?, id?, agent?, session?          → Receipt
//
// and the backend's own, such as listSessions. Where no agent and session are named,
// those of the connection are meant; attach changes them, and with another agent alone
// begins a fresh session of it. Without hash an answer is for what this connection was
// shown. A receipt is told after the bus has acknowledged, never before.
//
// These six are handled one after the other, in the order in which they came; all else
// runs beside them. Batches, notifications and ids are as JSON-RPC 2.0 has them; a batch
// has at most [jsonrpc.MaxBatch] requests.
//
// # Errors
//
// error.data is the [contract.Error], and error.code says the same as a number:
//
//	-32700  the message is no JSON          -32600  it is no request
//	-32601  unknown_method                  -32602  invalid_argument
//	-32603  internal                        -32001  unauthenticated
//	-32003  forbidden                       -32004  not_found
//	-32008  too_slow                        -32009  conflict
//	-32013  too_large                       -32029  rate_limited
//	-32053  unavailable                     -32030  overloaded
//
// # How a connection ends
//
//	1001  the bridge stops, after what was due was answered; connect again
//	1003  a message was binary
//	1007  a message was not UTF-8
//	1009  a message was larger than [Config.MaxMessage]
//	4408  the connection did not keep up; the reason is "after=<last id>: …"
//	4401  the token has expired, or was logged out
//	4nnn  otherwise: nnn is the HTTP status of the error, such as 4400 for a wrong after
//	      or one that the log no longer holds (onDropped names the id to go on after),
//	      4403, 4404, 4500 or 4503
//
// Whoever was attached is told onDropped {code, message, after} before that, if he still
// reads. Who does not take a frame within [Config.WriteWait], leaves more than
// [Config.AtOnce] answers lying, or does not answer pings, is cut off without. Nobody
// waits for such a connection: what it is told waits in a bounded queue of the hub.
//
// Inputs, answers and commands that were taken are stored though the connection may end
// meanwhile; other requests end with it.
package rpc
