// Package event is the contract on the log: the envelope, the causes that come
// from outside, the events that core decides, and the commit that carries them.
//
// Everything on the bus is a CloudEvents 1.0 event in structured JSON; a commit
// is a CloudEvents batch whose first element is the commit's header
// (type skandha.commit.v1) and whose others are its events, in order.
// The schemas/ folder states the same contract for other languages, and a test
// holds every type here against it.
//
// The package is pure: it imports the standard library and package subject.
package event
