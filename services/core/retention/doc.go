// Package retention bounds the log: turns that are over leave it for the archive, oldest first.
//
// Reads: the commits of all sessions, the state of the stream SESSIONS, how far the audit log and the outbox have read.
// Writes: segments of the archive. It deletes from SESSIONS what is archived. Checkpoints are commits, so the session
// writes them.
//
// Order (rule 17): a checkpoint with the whole state of the session; then the archive, read back; then the deletion of
// causes that the checkpoint has processed and of commits before the turn that is kept. The latest turn always stays.
//
// Failure: a run may end anywhere. The next one repeats what is missing, and a part that is archived twice is read
// once. Without an archive that works, nothing is deleted. One core works at a time, the one that keeps the view; two
// of them do no harm, since each deletes only below a checkpoint that it has read from the log.
//
// Testing: the choice of what leaves is a pure function (plan_test.go); the rest over an embedded server, through
// package shell.
package retention
