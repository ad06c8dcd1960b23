// Package jsonrpc reads and writes the messages of JSON-RPC 2.0: requests and batches,
// answers, and notifications with their place in the log. It knows no connection, and
// refuses what is wrong with the answer that the standard wants.
package jsonrpc
