// Package cron is the listener that follows the clock: each entry has a schedule,
// and each occurrence is one input.
//
// # Subjects
//
// The clock is that of package clock, with the listener's name as the owner. One of the
// replicas consumes what is due, emits the input, records it in the bucket cron (key
// <listener>.<entry>: the last occurrence), stores the next schedule and acknowledges. The
// listener creates stream, bucket and consumer, with as many replicas as SESSIONS has.
// Summer time is as package clock says.
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
