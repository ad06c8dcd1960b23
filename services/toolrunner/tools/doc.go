// Package tools defines a built-in tool: its description and a function.
// Each group of tools is a package below this one and imports neither NATS nor
// the runner.
//
// A tool's function is called in a separate goroutine, with arguments that match its
// schema and have their defaults filled in. It returns soon after its context ends;
// otherwise the runner answers for it and its slot stays taken. The runner recovers
// panics.
package tools
