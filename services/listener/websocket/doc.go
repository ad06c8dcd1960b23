// Package websocket is the listener for programs and pages that keep a connection
// open: GET /ws/<name>. Each message is one input.
//
// # Authentication
//
// A client presents a token of [Config].Tokens in the header Authorization: Bearer
// <token>, or, where it cannot set headers, as in browsers, as the subprotocol
// skandha.bearer.<token> beside the subprotocol skandha.v1, which the server selects.
// A URL carries no token; a query is refused. A page (a request with Origin) is
// accepted only from [Config].Origins.
//
// # Messages
//
// In, as text: {"text": …, "id": …, "session": …}, of which text is required; a
// session may be chosen if [Config].ChooseSession is set. Out, one for each and in the
// same order: {"id", "sequence"} once the log has acknowledged the input, never before,
// or {"id", "error", "retry"}. With retry, the same message with the same id may be sent
// again and is then the same input (see package contract). An input that is refused
// because too many are in flight may be answered before earlier ones.
//
// # Limits
//
// A connection has at most [AtOnce] inputs in flight, a message at most
// [Config].MaxMessage bytes, the listener at most [Config].MaxConnections connections.
// A client that does not read its answers, or does not answer pings, is disconnected.
// When the listener stops, accepted inputs are acknowledged first; then connections
// are closed with 1001 (going away).
package websocket
