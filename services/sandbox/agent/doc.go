// Package agent contains the agent, the first process of every sandbox, and [Conn], the
// service's end of the agent's pipe. The package does not use the bus.
//
// The agent is a running interpreter. It forks a fresh process for each call, relays the
// process's output and ends everything it has left running. It does nothing else itself:
// file operations also run in a forked child. It has one thread and one loop, so that
// forking is safe. Code in the sandbox cannot kill it, since it is the first process of its
// PID namespace. (Where it is not, as in tests, it finds strays as its descendants, and can
// be killed.)
//
// The interpreter is started with [Args] and gets the agent itself over the pipe: an image
// needs Python 3.9 or later with its standard library, /proc and /dev/null, and nothing of
// ours. The *.py files are the agent's parts. They are concatenated, compiled by the first
// interpreter of each version, and from then on sent in compiled form.
//
// # Calls
//
// Runs of a sandbox are sequential; file operations run concurrently with them. Each ends
// by its own timeout, by its context, or because the agent is given up. A run ends when its
// main process ends: the processes it has left are killed, the data still in its pipes is
// kept, then the next run begins. When Python code itself reports that it is done and has
// left nothing, it is answered while the kernel tears down its process, and the next run
// begins after that.
//
// Memory is bounded on both sides: of output a head and a tail are kept, data moves within
// a window of 512 KiB, and live output is dropped rather than waited for. When a sandbox
// runs out of memory, the kernel ends the runs before the agent.
//
// # Failure
//
// A refusal is an [*Error]. [ErrBroken], for this and all later calls, means that the agent
// sent invalid data, did not answer within its limits, can no longer start a process, had
// its own limits changed, or that the pipe has ended; the caller must then destroy the
// sandbox. This package never repeats a call.
//
// # Trust
//
// Code in a sandbox runs under the agent's own user. Everything the agent sends is therefore
// treated as the output of untrusted code: sizes are bounded on this side, names and texts
// are data, and an invalid frame ends the sandbox. The isolation of the sandbox never
// depends on what the agent reports. In practice code cannot read the agent's memory or use
// its pipes, but this is not a guarantee.
package agent
