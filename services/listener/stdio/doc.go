// Package stdio is the listener that reads lines: each line of standard input is
// one input.
//
// # Lines
//
// A line ends with \n or \r\n; empty ones are skipped, and the last one needs no
// end. With [Config].JSON each line is an object {"text": …, "session": …, "id": …,
// "mode": …}, of which text alone is needed; unknown fields are ignored. A line
// without an id of its own gets one that no other line of any run has, so that it is
// taken once however often it has to be emitted; only ids of your own make it safe to
// feed the same lines again.
//
// # Guarantee and order
//
// Lines are emitted in order, one after the other: the next one is read when the one
// before is acknowledged or refused. While the bus is away the line is emitted again
// and again. With [Config].Acks, what became of each line is written to standard
// output as {"line", "id", "sequence"} or {"line", "id", "error"}.
//
// # Failure
//
// A line that is wrong is reported and left out, and those behind it go on; at the
// end of the input the listener ends with an error if there were any. Whole lines
// that were read when it is stopped are emitted as long as there is time. What was
// read and is not taken then, half a line included, is named by OnStop's error.
package stdio
