// Package schedules lets agents wake themselves: an agent creates schedules, webhooks and watches of
// its session, and each occurrence is an input of that session.
//
// Consumed: calls of the tools schedule:create, schedule:webhook, schedule:watch, schedule:list and
// schedule:delete, which each core offers as an executor; the bucket schedules, a key for each
// schedule; what is due by package clock, whose owner is [subject.ScheduleWriter]; and calls of
// webhooks, as requests to service.core.occur. Produced: inputs on
// agent.<agent>.<session>.sense.input.schedule, with the source schedule:NAME, and with the origin
// schedule:NAME, webhook:NAME or web.
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
// The call of a webhook is one input, by the id that its caller gives it. A change that a watch sees is
// one input; one that it sees while its previous input waits is seen again later. A look that is lost
// with its core is not made up for: the next one sees the same.
//
// # Failure
//
// A page that cannot be read is a problem of its watch, which people see, and is read again next time.
// A page that hangs delays no other schedule; a core reads at
// most [atOnce] at a time, and [ofOneAgent] for one agent.
//
// While no core runs, nothing occurs. Each core looks every minute for schedules that the clock has
// lost. Schedules of an agent that is not configured stay, are listed with the problem, and occur
// again once it is configured.
package schedules
