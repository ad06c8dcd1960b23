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
// complete before stays: it is in the queue, or in the log.
//
// What was complete at the time of the switch or later is discarded, even if this process learns of the
// switch later. So before anything of a perception leaves the process, the switch is read from the
// leader of its bucket, after the perception was complete. If there was a switch which this process has
// missed, and the listener may have been off, everything that waits is discarded. Times are those of the
// listener's machine and of the bus, whose clocks should agree.
//
// A process that cannot reach the bus for [Sense].Grace stops reading, because nobody could switch it
// off, and begins again once it has read the switch.
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
