// Package model contains the turn protocol as a state machine, and an explorer that
// visits every state of it within a budget of faults.
//
// The code in services/core/decide and services/core/session follows this model. If you
// change one, change the other, and run
//
//	go test ./services/test/model/               small worlds, every mutation
//	go run ./services/test/model/explore -all    large worlds, some minutes, 3 GB
//	go run ./services/test/model/explore -bugs   every mutation
//	go run ./services/test/model/explore -s tool -crash 3 -rc 0
//
// # The world
//
// The world has one session; up to two inputs; up to two tool calls in the turn of
// one; two cores; two executor instances ("runners"). Any core may take any unacked
// cause at any time, so stalled cores, redelivery and two cores at once need no budget.
// A core's commit, its dispatch, each question to a runner and each step of a runner are
// separate steps, and cores and runners may crash between any two of them. A dispatch in
// flight may arrive arbitrarily late, or twice. Acks are atomic; a lost ack is a core
// that never takes the step. start_by passes first at the runner and later, by the skew,
// at the cores.
//
// Any core without a delivery may checkpoint the session, and two retention workers delete what
// checkpoints make superfluous. A worker may be stalled for any time, and may leave anything undone:
// in some worlds it deletes message by message, in any order. So a core that reads the log while
// messages are deleted needs no steps: it reads what another order of deletions leaves. A server that
// crashes may bring messages back: then fewer were deleted. A core may decide on a state that it has
// kept since any earlier commit, or since before the first, and may still hold the delivery of a cause
// that is gone.
//
// # The rules
//
// Comments in the code name the rule of the protocol that a line implements:
//
//	 1 Log         state is the fold of the commits. What nobody has written is noise, which no reader
//	               counts: the server stores its answers on any subject that a client names (ADR 45)
//	 2 Commit      is fenced with the last commit; causes are processed in log order. A commit that the
//	               server refuses for noise alone is sent again, after it
//	 3 Driver      the commit names the delivery whose holder drives the turn
//	 4 Ack         only processed causes, and not the driver's while it drives
//	 5 No effect   is permanent, and read from all earlier commits, in a copy of the log
//	               that includes the delivery in hand: a copy without that cause lags,
//	               and is read again. An answer that does not count is refused by a
//	               commit that only moves the cursor, unless the session has no commit
//	               yet (ADR 14)
//	 6 Fence lost  fold again, decide again
//	 7 Assignment  only the core with a clean PubAck dispatches; the others ask
//	 8 Executor    start, tombstone and refusal go through one locked table
//	 9 Answers     what a core concludes from a runner's answer, or its silence
//	10 Closing     ask to stop, then commit under the earlier fence
//	11 Model calls are idempotent. An attempt that a busy provider refused, or whose process
//	               ended, is not a failed one; the list of providers is gone through to
//	               its end before a plan fails (ADR 26)
//	12 Parking     commit, store the timer, then ack
//	13 Poison      a core that decides a cause which another process may have tried to decide
//	               first stores that it begins. The decision removes the mark, and so does
//	               a core that is stopped before. A cause with the marks of two processes that
//	               have ended is poison. Waiting and deliveries do not count (ADR 48)
//
//	17 Retention   a core may commit the whole state of a session without an open turn or a queued
//	               input. Such a checkpoint is fenced, moves no cursor, keeps the marks of rule 13,
//	               and folding may begin at it. What a checkpoint in the log makes superfluous may be
//	               archived, and then deleted, in any order or not at all: causes up to the cursor
//	               that it carries, and commits below it, except tombstones. So the last commit is
//	               never deleted. A delivered cause that is gone is acked without a commit. A delete
//	               of the session closes its turn (rule 10) and ends its queue; later inputs and
//	               commands are refused by a commit, but for an undelete. A tombstone is a
//	               checkpoint of a deleted session: after it, an undelete is refused as well
//	18 Probes      a tool with a probe records durably that its effect begins, before it does;
//	               a probe that finds no such record closes the call in the same step, so that
//	               "did not run" stays true. A probe has no effect, so it is repeated like an
//	               idempotent call (ADR 31)
//
//	19 Pause       a pause keeps what runs, and its driver. While a session is paused, no input starts a turn,
//	               an interrupt neither; no call begins, whatever model and people answer; no call gets
//	               another attempt, but for a probe. A turn of which nothing runs is held: its cause may be
//	               acked without a timer. A resume starts what was held, and its delivery becomes the
//	               driver of the open turn, as that of the driver may be acked
//	20 Steering    an input that steers waits like any other while a turn runs. If the same person began the
//	               turn, the commit that next asks the model about results of calls takes it into the turn,
//	               and is its terminal event. A cancel of it then ends the turn. An input that steers and that
//	               no such commit takes begins its turn from the queue
//
// # What is checked
//
// In every state (check.go): one terminal event per input; one result per call; an
// effect that is not idempotent happens at most once; no "did not run" for a call that
// ran, or still may; "succeeded" only with an effect; no effect begins after its call was
// closed; outcome_unknown only after a crash, a partition, a stop or a dropped result; an
// approval counts once, in time, and only for a request that was pending at its position;
// a call that two people must approve begins after two of them did;
// every other answer to an existing session is audited, once; a cancel never hits a turn
// that began after it; a turn ends with results for all of its calls; an acked cause has
// no further effect; causes are committed in order; an open turn has an unacked cause
// whose holder must drive it, and a parked one has that or a stored timer. Deletions make no
// difference to any of this, because these checks are made on archive and log. In addition: the log
// alone folds to the same state; the archive has all that was deleted; a cause is not deleted before
// it is processed, nor the driver's while it drives; no cursor skips an input or a command; the last
// commit stays, so that no earlier fence is valid again; a deleted session starts nothing; a
// tombstone follows a delete, stays, and is final.
//
// At the end: from every state, the goal (all inputs have ended) can be reached. This
// does not prove fairness: reachable is not inevitable.
//
// The mutations (mutations.go) are the protocol with one rule broken. The checks must
// find each of them; if one passes, the checks have become ineffective.
//
// # What is not modelled
//
// Reason about these and test them with care: more than two calls at once, and two calls
// at once with two attempts each, confirmations or a second input; fallible folds and
// snapshots (15); the conversation that a tombstone drops, when a session or an archive is old enough,
// and the other readers of the log, such as the audit log and the outbox (17); stale reads on three replicas (but see the mutations
// staleNoop and lagDeleted); several sessions; MaxAckPending; the order and content of
// what UIs see (16); hooks (14); deadlines other than start_by; the repetition of an
// input's id (5); a driven session's limit of deliveries (13).
//
// # How it is explored
//
// The search is breadth first, so traces are as short as possible. The same
// configuration always produces the same numbers. States are identified by 128-bit
// fingerprints; a collision could hide a state, with a probability below 10^-22.
package model
