// Package archive keeps what has left the log: the causes and commits of a session that retention has removed, in
// files of a directory or objects of an S3-compatible bucket.
//
// A session's part of the log becomes a chain of segments, each named
//
//	<agent>/<session>/<time at which the log was created>-<first sequence>-<last sequence>.jsonl.zst
//
// A segment is JSON lines, compressed with zstd: a header, one line per message with its bytes as they were stored, and
// a trailer with the number of messages and the SHA-256 of all lines before it. Any zstd and any JSON reader can read it.
//
// Guarantee: a segment that [Writer.Close] has stored is complete, on disk or in the bucket, and was read back. Writing
// a segment again replaces it by an equal one, so an interrupted run is repeated.
//
// Failure: a segment that is damaged, or of another session, is an error that names it; no part of it is returned.
//
// Testing: with a temporary directory, and with a server that speaks S3 (store_test.go).
package archive
