// Package rpc serves UIs over a WebSocket: JSON-RPC 2.0 at GET /v1/ws, with the method
// names of the specification.
//
// # Connecting
//
// The URL's parameters are agent, session, after, html=1, commits=1 and ui (the UI's name,
// which people see with an answer). All are optional: the default agent is [Config.Agent],
// or the first one that the token may access; the default session is a new one. Package
// access has authenticated the request before. The client may ask for the subprotocol
// skandha.v1. The first notification describes where the connection is attached:
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
// The params of a notification from the log carry its place as id. A client that connects
// with ?after=<the last id>, or calls attach with it, gets exactly what follows. A token
// without the "see" right gets onDropped instead of onAttached, and may still call the
// methods that it has rights for.
//
// # Methods
//
// Parameters are named, or an array in this order ([request.Desk.Call]):
//
//	attach               agent?, session?, after?, html?, commits?  → {agent, session}
//	detach                                                           → {}
//	submitUserInput      input, id?, mode?, agent?, session?         → Receipt
//	provideConfirmation  confirmationId, approved, hash?, reason?, always?, agent?, session? → Receipt
//	cancelTurn           sequence?, inputId?, reason?, agent?, session? → Receipt
//	runCommand           name, args?, id?, agent?, session?          → Receipt
//
// Further methods are the backend's, such as listSessions. A request without agent and
// session is for those of the connection; attach changes them, and with only another agent
// it begins a new session of that agent. An answer without hash is for the request that was
// sent on this connection. A receipt is sent after the bus has acknowledged, never before.
//
// These six are handled one after the other, in the order of their arrival; all others run
// concurrently. Batches, notifications and ids follow JSON-RPC 2.0; a batch has at most
// [jsonrpc.MaxBatch] requests.
//
// # Errors
//
// error.data is the [contract.Error], and error.code is its code as a number:
//
//	-32700  the message is not JSON         -32600  it is not a request
//	-32601  unknown_method                  -32602  invalid_argument
//	-32603  internal                        -32001  unauthenticated
//	-32003  forbidden                       -32004  not_found
//	-32008  too_slow                        -32009  conflict
//	-32013  too_large                       -32029  rate_limited
//	-32053  unavailable                     -32030  overloaded
//
// # End of a connection
//
//	1001  the bridge is shutting down, after it has answered open requests; reconnect
//	1003  a message was binary
//	1007  a message was not UTF-8
//	1009  a message was larger than [Config.MaxMessage]
//	4408  the connection did not keep up; the reason is "after=<last id>: …"
//	4401  the token has expired, or the browser has logged out
//	4nnn  any other error: nnn is its HTTP status, such as 4400 for an after that is invalid
//	      or no longer in the log (onDropped names the id to continue after),
//	      4403, 4404, 4500 or 4503
//
// An attached client that still reads gets onDropped {code, message, after} before that. A
// client that does not read a frame within [Config.WriteWait], leaves more than
// [Config.AtOnce] answers unread, or does not answer pings, is cut off without it. Such a
// connection delays nobody else: its notifications wait in a bounded queue of the hub.
//
// Accepted inputs, answers and commands are stored even if the connection ends meanwhile;
// other requests end with it.
package rpc
