// Package jsonrpc reads and writes the messages of JSON-RPC 2.0: requests and batches,
// answers, and notifications with their place in the log. It does not handle connections.
// It answers invalid messages with the error that the standard defines.
package jsonrpc
