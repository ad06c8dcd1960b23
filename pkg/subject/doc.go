// Package subject builds and parses all NATS subjects of Skandha.
//
// No other package concatenates subjects. Each token from outside (agent, session, writer,
// plugin, instance) is an id of the form [A-Za-z0-9_-]{1,64} and is checked once, when it is
// converted to a typed value. A free name, such as the tool "python:execute", is encoded
// with [Encode] first. So no id can add a token, a wildcard, a space or a line break to a
// subject.
//
// The package imports only the standard library.
package subject
