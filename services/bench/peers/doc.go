// Package peers measures the same turn in several engines, interleaved on one machine and one disk: what a user
// would pick instead of Skandha, beside Skandha. The turn is two model calls and one tool call, all of which cost
// nothing, and every step is durable before the next begins.
//
// Each engine is a program that starts whatever servers it needs as its children. It writes a [Hello] to standard
// output, then an [Answer] for each [Request] from standard input, and ends, with its servers, at the end of the
// input. All are JSON, one a line. [Serve] is that program's loop. The programs of the others are in
// deploy/bench/peers, a separate module that imports nothing of ours, so that each is built with the versions that
// its authors chose.
//
// The times are taken in the engine's program, so the pipe is not part of them. The processor time is that of the
// program and all its descendants, from /proc.
package peers
