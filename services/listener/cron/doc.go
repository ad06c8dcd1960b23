// Package cron is the listener that follows the clock: each entry has a schedule,
// and each occurrence is one input.
//
// # Subjects
//
// The server's clock decides. For each entry one message schedule is stored on
// cron.<listener>.<entry> in stream CRON; when it is due, the server publishes it on
// occurred.<listener>.<entry>, whether or not a listener runs. One of the replicas
// consumes it there (durable consumer <listener>), emits the input, records it in the
// bucket cron (key <listener>.<entry>: the last occurrence), stores the next schedule
// and acknowledges. The listener creates stream, bucket and consumer, with as many
// replicas as SESSIONS has.
//
// # Guarantee
//
// An occurrence is one input, whichever process dies: its id is the entry's name and
// the time of the occurrence, so emitting it again is the same input. The last
// occurrence is recorded after the input is acknowledged and before the next
// schedule is stored. Occurrences of an entry are emitted in order.
//
// An occurrence that no replica could emit in time is missed; [CatchUp] decides what
// happens with it. It is in time for [Entry].Late after it was due.
//
// # Summer time
//
// Schedules are read on the wall clock of the entry's zone. An entry whose hour
// field is * follows elapsed time: none of its occurrences is skipped or doubled.
// For every other entry, what falls into the skipped hour occurs once, at the moment
// the clock is put forward, and what falls into the repeated hour occurs only the
// first time. @every follows elapsed time.
//
// # Changing entries
//
// An entry is identified by its name. One with a new schedule or zone begins anew:
// occurrences that its old schedule missed are not caught up. When an entry is
// removed, its schedule is deleted at the listener's next start. Replicas must have
// the same entries; the listener that started last wins.
//
// # Failure
//
// While the bus is unavailable nothing happens; when it is back, whatever is due is
// emitted. Every minute the listener checks the schedules and restores one that is
// lost.
package cron
