// Package tracing makes a trace of each turn that ends at this core: from its commits, as a timeline shows it. So a
// trace says what the log says, also of a turn that several cores have driven, and no step of a turn waits for it.
//
// The trace is that of the input's message, so that it continues the sender's. The ids of the turn's span and of those
// of its plans and calls follow from their names (see package signals): requests carry them, and the spans of other
// processes are their children.
//
// Guarantee: none. While the spans of many turns wait, those of further ones are left out, and counted.
package tracing
