// Package websocket is the listener that programs and pages keep a connection to:
// GET /ws/<name>. Each message is one input.
//
// # Who may connect
//
// A token of [Config].Tokens is shown in the header Authorization: Bearer <token>,
// or, where no header can be set, as in browsers, as the subprotocol
// skandha.bearer.<token> beside the subprotocol skandha.v1, which the server selects.
// A URL carries no token; a query is refused. A page (a request with Origin) is let in
// from [Config].Origins alone.
//
// # Messages
//
// In, as text: {"text": …, "id": …, "session": …}, of which text is needed, and a
// session may be chosen if [Config].ChooseSession is set. Out, one for each and in the
// same order: {"id", "sequence"} once the log has acknowledged the input, never before,
// or {"id", "error", "retry"}. With retry the same message with the same id may be sent
// again; the input is the same then (see package contract). What is refused because
// too much is under way may be told before what came earlier.
//
// # Limits
//
// A connection has at most [AtOnce] inputs under way, a message at most
// [Config].MaxMessage bytes, the listener at most [Config].MaxConnections connections.
// Who does not read his answers, or does not answer pings, is dropped. When the
// listener stops, what was taken is acknowledged first; then connections are closed
// with 1001 (going away).
package websocket
