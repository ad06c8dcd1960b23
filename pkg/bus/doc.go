// Package bus connects a Skandha process to NATS. It provides two permanent connections,
// requests with addressed replies, storage for large message bodies, and the publication of
// causes. Everything else about the log, such as commits, consumers and timers, is in
// services/internal/journal, which builds on the two links.
//
// # Subjects
//
//	stream SESSIONS   agent.*.*.sense.*.* (causes), probe.* (no content)
//	bucket claims     bodies in transit
//	plain             announcements, beacons: [Bus.Publish]
//	requests          any subject, answered on reply.<caller>.<responder>.<instance>.<n>
//
// Every message carries a traceparent. Skandha's headers begin with "Skandha-". The tests of
// this package are in services/test/bustest.
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
// A request is sent at most once and may have any number of replies, which arrive in order.
// A missing responder is reported immediately. A request that was sent but not answered may
// have been carried out. A caller that gives up can say so ([Caller.RequestOrStop]); that is a message
// as any other, and may be lost.
//
// Live messages may be lost. A message that the server has taken out of a stream, because a client had it
// answer there, is dropped ([Bus.Foreign]).
//
// # Failures
//
// A connection is given up if the server is silent for about five seconds; a busy server is
// not silent. Without a connection, nothing is buffered: publishing fails immediately with
// [ErrUnavailable] or [ErrAmbiguous], and so does waiting for an answer. The package
// reconnects forever, with jitter; subscriptions then resume.
//
// Errors have a [Code] of a closed set, which is sent with the error. errors.Is compares
// codes, so it also works in the process that sent the request.
//
// While the log cannot store (the disk or a limit is full), appends fail with a
// [StorageFault] that contains the reason, and inputs are refused immediately. A server
// whose disk was full stops answering until it is restarted. This package asks it for the
// cause with a request that has no effect ($JS.API.STREAM.MSG.DELETE.SESSIONS for a message
// that cannot exist) if its credentials allow that; in a system with rights only core's do, and
// the others learn the cause from core's beacons. Without either it remains unknown. The package
// then stores a probe about once a second until one is acknowledged.
//
// It is such a fault, too, if the log's stream was deleted, or the server has an empty
// directory. Core creates lost streams again.
//
// # Back-pressure
//
// Only inputs are refused with [ErrOverloaded], while a core's last [Beacon] reports that
// more of them wait than it allows. Without a recent beacon, they are stored.
//
// Functions that receive replies run on one goroutine for the whole process and must not
// block. A responder handles [DefaultConcurrency] requests at a time; further ones wait, at
// most until their deadline, or are refused (see [Queue]).
//
// # Testing
//
// skandha.dev/services/test/natstest starts a real server within a few milliseconds in
// the same process, or one in a separate process that can be killed.
package bus
