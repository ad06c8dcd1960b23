// Package bus is how a Skandha process speaks on NATS: two connections that stay,
// the log of causes and commits, timers, requests with addressed replies, and
// large bodies beside the messages.
//
// # What it reads and writes
//
//	stream SESSIONS   agent.*.*.sense.*.* (causes), agent.*.*.commit (commits), probe.* (nothing)
//	stream TIMERS     timer.*.*.* (schedules), fired.*.*.* (firings)
//	stream DEAD       dead.>
//	buckets           claims (bodies on their way), artifacts (results that commits refer to, files),
//	                  plugins (the registry, by keys)
//	plain             live events, token deltas, announcements, beacons: [Bus.Publish], [Bus.PublishLive]
//	requests          any subject, answered on reply.<responder>.<caller>.<n>
//
// Every message carries a traceparent. Headers of Skandha's own begin with
// "Skandha-". The exact allow-list that core needs is in the tests of this
// package (services/internal/bustest, secure_test.go).
//
// # Two connections
//
// Anything that a disk may delay (appends to the log, reads of it, large bodies) uses
// one connection, everything else the other; see schemas/adr/0018. There is no order
// between the two, except that a message sent after an acknowledgement follows what
// was acknowledged.
//
// # What is promised
//
// A cause whose sequence was returned is stored, once: a lost acknowledgement is
// asked for again under the same message id until the context ends.
//
// A commit is stored only behind the commit it was made for. The answer is
// stored, definitely not stored ([ErrFenceLost], [ErrRefused], [ErrTooLarge]) or
// not known ([ErrAmbiguous]: read the last commit).
//
// Causes and firings are delivered at least once, each to one of the processes
// that consume, until acknowledged; redelivery breaks their order. What reads the
// log ([Bus.Commits], [Bus.Messages], [Bus.NextCause]) sees it in order, whole,
// and everything that was acknowledged before the call, also when the stream has
// several copies, some of which lag. For a moment after copies were added, a copy that
// lags may still answer a read. [Bus.NextCause] does not trust such an answer: it
// never takes a delivered cause for a deleted one.
//
// A change of a [Bucket] is stored only if its fence holds. A watch gets every
// change, in order, or everything anew.
//
// Requests are sent at most once and answered any number of times, in order.
// That nobody listens is known at once. A request that was sent and not answered
// may have been carried out.
//
// Live messages may be lost.
//
// # When something fails
//
// A server that is silent for about five seconds is given up; a busy one is not.
// Without a connection nothing is kept for later: publishing fails at once with
// [ErrUnavailable] or [ErrAmbiguous], and whoever waits for an answer is told. The
// connection is made again for ever, with jitter; subscriptions and consumptions
// go on by themselves. A consumer that is gone (its state is in the server's
// memory, so a restart of a single server removes it) is made again from the
// floor its user names, within about two seconds.
//
// A publisher can do no harm through headers. What the server says of a stored
// message is taken from where the publisher cannot write, so a cause with the
// header "Status: 409" or "Nats-Subject: …" is a cause with an odd header. (The
// usual client calls would end a consumption or a batch on it; that is why this
// package pulls and reads by itself.)
//
// Errors have a [Code] of a closed set, which crosses the bus; errors.Is compares
// codes, so it works in the process that asked.
//
// While the log cannot store (the disk or a limit is full), appends fail with a
// [StorageFault] that gives the reason, and inputs are refused at once. A server whose
// disk was full stops answering until it is restarted. This package asks it for the
// cause with a request that has no effect ($JS.API.STREAM.MSG.DELETE.SESSIONS for a
// message that cannot exist; without that permission the cause stays unnamed). It then
// stores a probe about once a second until one is acknowledged.
//
// A log whose stream was deleted, or that a server with an empty directory does not have,
// is such a fault, too. Core creates lost streams again ([Bus.KeepStreams]); every other
// process only reports that the stream does not exist.
//
// # Back-pressure
//
// Inputs, and only inputs, are refused with [ErrOverloaded] while a core's last
// [Beacon] says that more wait than it allows. Without a recent beacon they are
// stored.
//
// Handlers of causes and firings are called one at a time and pull no more than
// a few hundred messages ahead. Functions that take replies run on one goroutine
// for the whole process and must not block. A responder handles
// [DefaultConcurrency] requests at a time; further ones wait until their deadline.
//
// # Testing
//
// skandha.dev/services/internal/natstest starts a real server in the same process
// in a few milliseconds, or one of its own process that can be killed.
package bus
