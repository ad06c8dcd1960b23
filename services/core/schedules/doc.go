// Package schedules lets agents wake themselves: an agent creates schedules of its session, and each
// occurrence is an input of that session.
//
// Consumed: calls of the tools schedule:create, schedule:list and schedule:delete, which each core
// offers as an executor; the bucket schedules, a key for each schedule; and what is due by package
// clock, whose owner is [subject.ScheduleWriter]. Produced: inputs on
// agent.<agent>.<session>.sense.input.schedule, with the origin schedule:NAME.
//
// # Guarantee
//
// An occurrence is one input, whichever process dies: its id consists of the schedule and the time.
// It is recorded after the input is acknowledged, and before the next one is laid. Of occurrences
// that were missed, the latest is made up for. One that comes while the schedule's previous input
// still waits in the session's queue is skipped.
//
// A schedule with when_idle occurs once the session has had no message in the log for that long, and
// has no open turn. It occurs again only after an input by somebody else.
//
// Creating is idempotent by name. The limits per session and agent hold with any number of cores:
// a schedule is stored only if none of the agent's has changed since they were counted.
//
// # Failure
//
// While no core runs, nothing occurs. Each core looks every minute for schedules that the clock has
// lost. Schedules of an agent that is not configured stay, are listed with the problem, and occur
// again once it is configured.
package schedules
