// Package agent is what runs inside a sandbox and the service's way to speak to
// it: the agent, first process of every sandbox, and [Conn], the other end of its
// pipe. It speaks to no bus.
//
// The agent is a started interpreter. It forks a fresh process for each call,
// relays what it prints, ends all that it has left running, and does nothing else
// itself: file operations, too, run in a forked child. It is one thread and one
// loop, so that forking is safe, and it cannot be killed from inside, since it is
// the first process of its PID namespace. (Where it is not, as in tests, it finds
// strays as its descendants, and can be killed.)
//
// The interpreter is started with [Args] and gets the agent itself over the pipe:
// an image needs Python 3.9 or later with its standard library, /proc and
// /dev/null, and nothing of ours. *.py are the agent's parts; they are
// concatenated, compiled by the first interpreter of each version, and from then
// on handed over compiled.
//
// # Calls
//
// Runs of a sandbox go one after the other, file operations beside them, and each of
// them ends by its own timeout, by its context, or by the agent being given up.
// A run is over when its main process is: what it has left is killed, what is
// still in its pipes is kept, then the next one begins. When Python code says
// itself that it is done and has left nothing, it is answered while the kernel
// dissolves its process, and the next run begins after that.
//
// Memory is bounded on both sides: of output a head and a tail are kept, data
// moves within a window of 512 KiB, and live output is left out rather than
// waited for. When a sandbox runs out of memory the kernel ends what runs before it
// ends the agent.
//
// # Failure
//
// A refusal is an [*Error]. Anything that makes no sense, an agent that does not
// answer within its limits, that can start no process any more or whose own limits
// were changed, and the end of the pipe are [ErrBroken], for this and all later
// calls; the sandbox is to be destroyed then. No call is repeated by this package.
//
// # Trust
//
// What runs in a sandbox runs under the agent's own user. Whatever the agent says is
// therefore taken as said by untrusted code: sizes are bounded on this side,
// names and texts are data, and a frame that makes no sense ends the sandbox. The
// agent's word is worth as much as the sandbox's isolation needs: nothing. That code
// cannot look into the agent's memory or use its pipes is so, and no promise.
package agent
