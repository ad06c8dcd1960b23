// Package journal is the log of causes and commits on JetStream, and what core and the
// services keep beside it: timers, artifacts and key-value buckets. A [Journal] is a
// [bus.Bus] with these.
//
// # Subjects
//
//	stream SESSIONS   agent.*.*.sense.*.* (causes), agent.*.*.commit (commits), probe.* (no content)
//	stream TIMERS     timer.*.*.* (schedules), fired.*.*.* (firings)
//	stream DEAD       dead.>
//	buckets           claims (bodies in transit), artifacts (results that commits refer to, files),
//	                  plugins (the registry, by keys), budgets (what the providers have spent, by period),
//	                  memories (what agents remember, by agent and id)
//	                  …, each of which announces its changes on watch.<bucket>.<key>
//	plain             live events and token deltas: [Journal.PublishLive]
//
// The exact list of permissions that core needs is in services/test/bustest, secure_test.go.
//
// # Guarantees
//
// A commit is stored only directly after the commit that it names. The outcome is stored,
// definitely not stored ([bus.ErrFenceLost], [bus.ErrRefused], [bus.ErrTooLarge]) or unknown
// ([bus.ErrAmbiguous]: read the last commit).
//
// Causes and firings are delivered at least once, each to one of the consuming processes,
// until they are acknowledged. Redelivery breaks their order. Reads of the log
// ([Journal.Commits], [Journal.Messages], [Journal.NextCause]) return it in order and without
// gaps, with everything that was acknowledged before the call, even if some of the stream's
// copies lag. For a moment after copies were added, a copy that lags may still answer a read.
// [Journal.NextCause] does not trust such an answer: it never takes a delivered cause for a
// deleted one.
//
// Messages leave the log only by [Journal.Trim]; the first commit that is left is then no session's first.
//
// What nobody has written, because the server has stored it as its answer to a client, is no part of the log
// ([IsNoise]): no read returns it, and a commit is stored after it.
//
// A change of a [Bucket] is stored only if its fence holds. A watch receives every change in
// order, or the whole bucket again.
//
// # Failures
//
// Only core has consumers. A consumer's state is in the server's memory, so a restart of a single server removes it.
// The package creates a missing consumer again within about two seconds, from the floor that
// the caller names. Core creates lost streams again ([Journal.KeepStreams]); every other
// process only reports that the stream does not exist.
//
// A publisher can do no harm through headers. The server's metadata of a stored message is
// read from places that the publisher cannot write, so a cause with the header "Status: 409"
// or "Nats-Subject: …" is only a cause with an odd header. (The usual client calls would end
// a consumption or a batch because of it, which is why this package implements pulling and
// reading itself.)
//
// # Back-pressure
//
// Handlers of causes and firings are called one at a time, and at most a few hundred
// messages are pulled in advance.
package journal
