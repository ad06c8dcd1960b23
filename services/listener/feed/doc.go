// Package feed takes the readings of a listener through its rules (see package mapping) and
// stores what comes of them.
//
// # Subjects
//
// Produced: inputs, by the listener's emitter; and the state of the rules, in the bucket
// listeners (key state.<listener>.<rule>.<name>).
//
// # Guarantee
//
// [Item].Done is called when everything that follows from a reading is durable: first its
// input, then the state of the rule. A process that dies in between takes the reading again
// when its source delivers it again, and emits an input of the same id.
//
// # Back-pressure
//
// At most [MaxWaiting] readings, with [MaxWaitingBytes], wait. [Feed.Put] waits for space;
// [Feed.Offer] does not, and counts what it drops. While the bus is unavailable or overloaded,
// readings wait.
//
// # Failure
//
// When the state cannot be stored, or another process has stored it, the state is read again
// and the readings that are not done are taken again. Run one process for each listener: while
// two run, an input may be there twice.
package feed
