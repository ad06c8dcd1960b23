// Package capture is what the listeners that see and hear people have in common: the switch, the
// source that is read again after a failure, the queue of perceptions, and the retention of what
// was recorded. Packages camera and microphone say what is perceived.
//
// # Subjects
//
// Produced: inputs, by the listener's emitter; recordings, as artifacts
// <agent>/<session>/uploads/<listener>.<time>.<id>.<type>. Consumed: the listener's switch, in the
// bucket listeners (key switch.<listener>, package senses).
//
// # Consent
//
// A [Recorder] reads its source only while its switch is on. It waits for the bus to know whether
// somebody has switched it; without a switch, start in the configuration decides. Switching off
// ends the child that reads the device, waits until it is gone, and discards the event or speech
// that had not ended; only then does [Recorder.Media] say that the switch is followed. What was
// perceived before stays: it is in the queue, or in the log. While the bus is away, the last known
// position holds. After this process was suspended (more than ten seconds without running), what was
// received is discarded, and the source is read again only once the switch was read again.
//
// # Guarantee
//
// A perception is one input. It is kept in memory until the log has it; a process that is killed
// loses the perceptions in its queue. Recordings are stored before their input. If that fails for
// another reason than an outage, e.g. the quota of the session, the input says so.
//
// # Back-pressure
//
// At most [MaxWaiting] perceptions wait, with their recordings; others are dropped and counted, as
// are those that follow the last one within every. A source never waits for the bus.
//
// # Failure
//
// A source that ends, hangs or sends garbage makes the listener down, with the reason, and is read
// again after a pause that grows from a second to a minute. Recordings that are older than keep, or
// more than keep_files, are deleted, the oldest first.
package capture
