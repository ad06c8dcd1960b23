// Package bus connects a Skandha process to NATS. It provides two permanent connections,
// the log of causes and commits, timers, requests with addressed replies, and storage for
// large message bodies.
//
// # Subjects
//
//	stream SESSIONS   agent.*.*.sense.*.* (causes), agent.*.*.commit (commits), probe.* (no content)
//	stream TIMERS     timer.*.*.* (schedules), fired.*.*.* (firings)
//	stream DEAD       dead.>
//	buckets           claims (bodies in transit), artifacts (results that commits refer to, files),
//	                  plugins (the registry, by keys)
//	plain             live events, token deltas, announcements, beacons: [Bus.Publish], [Bus.PublishLive]
//	requests          any subject, answered on reply.<responder>.<caller>.<n>
//
// Every message carries a traceparent. Skandha's headers begin with "Skandha-". The exact
// list of permissions that core needs is in the tests of this package
// (services/test/bustest, secure_test.go).
//
// # Two connections
//
// Operations that may wait for a disk (appends to the log, reads of it, large bodies) use
// one connection, and everything else uses the other; see schemas/adr/0018. There is no
// order between the two, except that a message sent after an acknowledgement follows the
// acknowledged message.
//
// # Guarantees
//
// A cause whose sequence was returned is stored exactly once. If an acknowledgement is lost,
// the message is sent again with the same message id until the context ends.
//
// A commit is stored only directly after the commit that it names. The outcome is stored,
// definitely not stored ([ErrFenceLost], [ErrRefused], [ErrTooLarge]) or unknown
// ([ErrAmbiguous]: read the last commit).
//
// Causes and firings are delivered at least once, each to one of the consuming processes,
// until they are acknowledged. Redelivery breaks their order. Reads of the log
// ([Bus.Commits], [Bus.Messages], [Bus.NextCause]) return it in order and without gaps, with
// everything that was acknowledged before the call, even if some of the stream's copies lag.
// For a moment after copies were added, a copy that lags may still answer a read.
// [Bus.NextCause] does not trust such an answer: it never takes a delivered cause for a
// deleted one.
//
// A change of a [Bucket] is stored only if its fence holds. A watch receives every change in
// order, or the whole bucket again.
//
// A request is sent at most once and may have any number of replies, which arrive in order.
// A missing responder is reported immediately. A request that was sent but not answered may
// have been carried out.
//
// Live messages may be lost.
//
// # Failures
//
// A connection is given up if the server is silent for about five seconds; a busy server is
// not silent. Without a connection, nothing is buffered: publishing fails immediately with
// [ErrUnavailable] or [ErrAmbiguous], and so does waiting for an answer. The package
// reconnects forever, with jitter; subscriptions and consumptions then resume. A consumer's
// state is in the server's memory, so a restart of a single server removes it. The package
// creates a missing consumer again within about two seconds, from the floor that the caller
// names.
//
// A publisher can do no harm through headers. The server's metadata of a stored message is
// read from places that the publisher cannot write, so a cause with the header "Status: 409"
// or "Nats-Subject: …" is only a cause with an odd header. (The usual client calls would end
// a consumption or a batch because of it, which is why this package implements pulling and
// reading itself.)
//
// Errors have a [Code] of a closed set, which is sent with the error. errors.Is compares
// codes, so it also works in the process that sent the request.
//
// While the log cannot store (the disk or a limit is full), appends fail with a
// [StorageFault] that contains the reason, and inputs are refused immediately. A server
// whose disk was full stops answering until it is restarted. This package asks it for the
// cause with a request that has no effect ($JS.API.STREAM.MSG.DELETE.SESSIONS for a message
// that cannot exist; without that permission the cause remains unknown). It then stores a
// probe about once a second until one is acknowledged.
//
// It is such a fault, too, if the log's stream was deleted, or the server has an empty
// directory. Core creates lost streams again ([Bus.KeepStreams]); every other process only
// reports that the stream does not exist.
//
// # Back-pressure
//
// Only inputs are refused with [ErrOverloaded], while a core's last [Beacon] reports that
// more of them wait than it allows. Without a recent beacon, they are stored.
//
// Handlers of causes and firings are called one at a time, and at most a few hundred
// messages are pulled in advance. Functions that receive replies run on one goroutine for
// the whole process and must not block. A responder handles [DefaultConcurrency] requests at
// a time; further ones wait, at most until their deadline.
//
// # Testing
//
// skandha.dev/services/test/natstest starts a real server within a few milliseconds in
// the same process, or one in a separate process that can be killed.
package bus
