// Package tools says what a built-in tool is: its description and a function.
// Each group of tools is a package below this one and imports neither NATS nor
// the runner.
//
// A tool's function is called with arguments that fit its schema, defaults
// filled in, on a goroutine of its own. It returns soon after its context ends;
// otherwise the runner answers for it and its slot stays taken. Panics are
// recovered by the runner.
package tools
