// Package mcp is a client of MCP servers (modelcontextprotocol.io): it offers their tools as tools of the
// runner, and carries out the calls. It speaks the protocols from 2025-11-25 on that begin with
// initialize, and 2026-07-28, over streamable HTTP and over standard input and output.
//
// # Servers
//
// A server is a URL or a command. Each has one connection, made in the background and made again when
// it ends, with pauses that grow to a minute. What it offers is announced while it is connected, and
// for 30 seconds after; a call in this time waits for the connection.
//
// # Trust
//
// What a server says is untrusted text. Descriptions are marked as the server's, cut, and freed of control
// characters; tools whose names or schemas are not valid, or that are too many or too large, are
// left out with a warning. By default each tool has a high risk, so that a person is asked, and
// none counts as idempotent; only the configuration changes that. Approvals hold for a description and a
// schema (ADR 24). Results have the label mcp:<server>.
//
// # Guarantee
//
// A call is sent once. If it certainly did not reach the server, it did not run; if it may have and
// there is no answer, its outcome is unknown. Only a deadline is a timeout. Cancelling a call sends
// notifications/cancelled.
//
// # What servers cannot do
//
// Roots, sampling and logging are not offered, as protocol 2026-07-28 deprecates them. A question of a
// server in the middle of a call (elicitation) is declined, and the result says what was asked.
// A command runs in bubblewrap unless its isolation is host; see ADR 56.
package mcp
