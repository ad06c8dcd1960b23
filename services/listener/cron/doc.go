// Package cron is the listener that goes by the time: an entry's schedule says
// when, and each occurrence is one input.
//
// # Subjects
//
// The clock is the server's: for each entry one message schedule lies on
// cron.<listener>.<entry> in stream CRON and is published on
// occurred.<listener>.<entry> when it is due, whether a listener runs or not. One
// of the replicas takes it from there (durable consumer <listener>), emits the
// input, notes it in the bucket cron (key <listener>.<entry>: what occurred last),
// lays down the next one and acknowledges. Stream, bucket and consumer are made
// here, with as many copies as SESSIONS has.
//
// # Guarantee
//
// An occurrence is one input, whoever dies: its id is the entry's name and the
// time of the occurrence, so what is emitted again is the same input. What
// occurred last is noted after the input is acknowledged and before the next
// schedule is laid down. Occurrences of an entry are emitted in their order.
//
// An occurrence that nobody could emit in time is missed; [CatchUp] says what
// becomes of it. It is in time until [Entry].Late after it was due.
//
// # Summer time
//
// Schedules are read on the wall clock of the entry's zone. An entry whose hour
// field is * goes by the time that passes: none of its occurrences is left out or
// doubled. For every other entry, what falls into the hour that is skipped occurs
// at the moment the clock is put forward, once, and what falls into the hour that
// is repeated occurs the first time alone. @every goes by the time that passes.
//
// # Changing entries
//
// An entry is known by its name. One with a new schedule or zone begins anew: what
// its old schedule has missed is not caught up. One that is removed loses its
// schedule when the listener starts. Replicas must have the same entries; the
// listener that started last wins.
//
// # Failure
//
// While the bus is away nothing happens, and when it is back what is due is
// emitted. Every minute the schedules are looked through, and one that is lost is
// laid down again.
package cron
