// Package toolschema checks the arguments of a tool call against the tool's
// JSON Schema: core before it asks anybody to run the tool, a runner before it
// runs it. Both get the same errors, every one of them, each with the JSON
// pointer of the place it is about, in words a model can act on.
//
// A schema is compiled once, by [Compile]; a [Validator] may be used by any
// number of goroutines. Nothing is ever loaded from a file or the network: a
// $ref that leaves the schema refuses it.
//
// The package speaks no NATS.
package toolschema
