// Package toolschema checks the arguments of a tool call against the tool's
// JSON Schema: core before it dispatches the call, a runner before it
// runs the tool. Both get the same complete list of errors, each with the JSON
// pointer of the value, in words a model can act on.
//
// A schema is compiled once, by [Compile]; a [Validator] may be used by any
// number of goroutines. Nothing is ever loaded from a file or the network: a
// schema with a $ref that leaves it is refused.
//
// The package does not use NATS.
package toolschema
