// Package subject builds and parses every NATS subject that Skandha speaks.
//
// No other package concatenates a subject. Each token that comes from outside
// (agent, session, writer, plugin, instance) is an id of the form
// [A-Za-z0-9_-]{1,64} and is checked once, when it becomes a typed value; a
// free name such as the tool "python:execute" passes through [Encode] first.
// So no id can add a token, a wildcard, a space or a line break to a subject.
//
// The package imports the standard library alone.
package subject
