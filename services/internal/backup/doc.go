// Package backup writes what a system keeps on the bus, and in directories, to one archive, and
// restores it.
//
// # Subjects
//
// Requests: $JS.API.STREAM.SNAPSHOT.* and $JS.API.STREAM.RESTORE.*, and what the server names in its
// answers ($JS.SNAPSHOT.*); $JS.API.STREAM.LIST, INFO and DELETE. Produces nothing else.
//
// # Archive
//
// A tar file. Each stream is a part of numbered chunks, as the server makes its snapshot: messages with
// their sequences and times, and consumers with what they have acknowledged. Each directory is a part, too,
// a tar inside. The last entries are the manifest, with a digest of each part, and the manifest's digest. So
// an archive can be written to a pipe, and one without an end is recognized.
//
// # Guarantee
//
// [Take] may run beside a working system. The streams that say what has been put into the log already
// ([before]) are taken first, and again until none has changed when the server fixes the end of the log; what
// commits refer to is taken after the log. So a restored system repeats at most what is recognized as
// repeated, and misses nothing that the log expects. A stream in which messages replace others is
// taken again if one was replaced meanwhile.
//
// [Open] reads the whole archive and refuses one that is truncated or altered before anything is written.
// [Archive.Restore] writes the log last: a system that is only half restored has none. A restored log has a
// new time of creation, by which cores recognize that their view is of another log.
//
// # Failure
//
// Errors name the stream, or the file. An interrupted Take leaves an archive without a manifest. An
// interrupted Restore removes the stream that is incomplete, and may be repeated with Replace.
package backup
