// Package event defines the messages in the log: the envelope, the causes that arrive from
// outside, the events that core decides, and the commit that carries them.
//
// Every message is a CloudEvents 1.0 event in structured JSON. A commit is a CloudEvents
// batch: its first element is the commit's header (type skandha.commit.v1), followed by its
// events in order. The schemas folder defines the same messages for other languages, and a
// test compares every type here with it.
//
// The package is pure: it does no I/O, and imports only the standard library and packages of
// this module that are pure as well.
package event
