// Package program runs a program for what it writes, bounded in time and size, and ends what it leaves running.
//
// A program is the leader of a process group, which is killed when the program has ended, when its time
// is up or when it writes too much. On Linux, after [Adopt], what it has started in a group or session apart
// is killed, too. If this process is killed, the program lives on.
package program
