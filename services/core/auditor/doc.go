// Package auditor keeps the audit log: who did, approved, refused, registered and revoked what, and when.
//
// Consumed: the commits in SESSIONS, the registry of plugins and the switches of cameras, as they are, and the
// administrative acts that package shell announces. Produced: stream AUDIT, whose messages are blocks of entries
// (package audit), and the published head: lines of a file, requests to a webhook. It answers service.admin.audit
// by [Auditor.Query].
//
// # Order
//
// Each block is stored only directly after the one that it continues, whichever core writes it. So the entries of
// several cores are one chain, and an entry's number has no gaps.
//
// # Guarantee
//
// Every entry says how far the log of decisions is audited with it, and the entries of one commit are in one
// block: so after kill -9, each commit is audited once, by whatever core goes on. An administrative act is announced
// before it is done, and refused if that fails; if it then fails, a second entry says so. What only shows as a state
// (plugins, switches) is compared with what the log says last; a change that is undone within a second may be left
// out. The log of decisions is followed beside the turns, about a second behind them; no turn waits for it.
//
// One core works: the one that wrote the last entry. Another one goes on when nothing was written for three seconds;
// if both do, the fence lets one win.
//
// # Failure
//
// A log that is not the continuation of what this core has read, of the number that the store of views remembers, or
// of the head that it has published, was damaged. That is logged, shown by status for a week and becomes an entry
// itself; the chain goes on. A full stream drops its oldest blocks. While the bus does not answer, everything waits.
package auditor
