// Package outbox delivers messages to people: the answers to inputs that say where they want them,
// and requests for approval.
//
// Consumed: the commits that core marks as outgoing (durable consumer outbox), and the bucket
// outbox. Produced: entries of the bucket outbox, and calls of the internal tools
// deliver:<listener>, which the listeners and plugins offer that the inputs came from.
//
// # Guarantee
//
// What a commit has to deliver becomes an entry of the bucket before the commit is acknowledged to
// the consumer; an entry has the id of its event, so it is made once. Entries for one destination
// are delivered in the order of the log, one after the other: an entry waits until every earlier
// outgoing commit has been handled, because another core may be slow to handle one. An entry is marked before its call is
// made. After a crash, or a result that leaves it open, the tool is probed; a message is sent again
// only if it certainly was not sent.
//
// One core delivers at a time: the one that holds the lease, a key of the bucket that it renews
// every second while there is something to deliver. Another takes it over when it has not changed
// for four seconds.
//
// # Failure
//
// A message whose listener is absent, or whose delivery fails, waits and is tried again, with
// growing pauses; those behind it for the same destination wait as well. Other listeners do not:
// each has a bound of destinations that are delivered to at once. Within it, those that failed the
// last time, or do not answer for some seconds, have separate places, so that they do not hold
// up the others. What waits for a listener is bounded as well: an entry beyond that is dead at once
// and has no text (the log has it).
//
// An attempt whose outcome the bus does not store is repeated, with growing pauses of this core; an
// outage is logged once, and so is its end.
//
// An entry is dead after [Config.GiveUp], when the tool reports that no repetition helps, or when it
// cannot be found out whether it was sent. Dead entries stay, are listed by service.admin.outbox, and
// can be sent again or dropped by hand.
package outbox
