// Package stdio is the listener that reads lines: each line of standard input is
// one input.
//
// # Lines
//
// A line ends with \n or \r\n; empty lines are skipped, and the last one needs no
// terminator. With [Config].JSON each line is an object {"text": …, "session": …,
// "id": …, "mode": …}, of which only text is required; unknown fields are ignored. A
// line without an id gets one that no other line of any run has, so that it is
// accepted once however many times it is emitted. To feed the same lines again
// safely, give them ids.
//
// # Guarantee and order
//
// Lines are emitted in order, one after the other: the next one is read when the
// previous one is acknowledged or refused. While the bus is unavailable the line is
// emitted again and again. With [Config].Acks, the result of each line is written to
// standard output as {"line", "id", "sequence"} or {"line", "id", "error"}.
//
// # Failure
//
// An invalid line is reported and skipped, and the lines after it continue; at the
// end of the input the listener ends with an error if there were any. When it is
// stopped, whole lines that were already read are emitted as long as there is time.
// OnStop's error names what was read and not accepted, half a line included.
package stdio
