// Package cron is the listener that follows the clock: each entry has a schedule,
// and each occurrence is one input.
//
// # Subjects
//
// The bucket cron, which core creates, holds the last occurrence of each entry under the key
// <listener>.<entry>. A replica reads the clock every second. When an entry is due, it reads the entry's
// position, emits the input, and records the occurrence. Summer time is as package clock says.
//
// # Guarantee
//
// An occurrence is one input, whichever process dies: its id is the entry's name and
// the time of the occurrence, so emitting it again is the same input. Two replicas that find the same
// occurrence due emit the same input, and one of them records it. Occurrences of an entry are emitted in
// order.
//
// An occurrence that no replica could emit in time is missed; [CatchUp] decides what
// happens with it. It is in time for [Entry].Late after it was due.
//
// # Changing entries
//
// An entry is identified by its name. One with a new schedule or zone begins anew:
// occurrences that its old schedule missed are not caught up. When an entry is
// removed, its position is deleted at the listener's next start. Replicas must have
// the same entries.
//
// # Failure
//
// While the bus is unavailable nothing happens; when it is back, whatever is due is
// emitted. An entry whose position was lost goes on from the last occurrence that a running replica knows.
package cron
