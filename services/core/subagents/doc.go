// Package subagents runs the tools with which agents give each other work: agent:delegate,
// agent:send, agent:wait and agent:stop. What a sub-agent does is a session like any other.
//
// Consumed: calls of the tools, which core's runner hands over with the commission that the decision
// about the call has fixed; commits of the sessions that work for the caller's. Produced: inputs and
// cancels on agent.<agent>.<session>.sense.{input,cancel}.agent.
//
// # Guarantee
//
// A task or a message is one input, whichever process dies and however often its call is made: its id
// is the call's. A call that is made again waits for the same input.
//
// What the sub-agents of a session have spent is reported with the results of these tools, as the sum
// so far, so that it counts once.
//
// # Failure
//
// A call that ends before its sub-agent does, because its time is over, says so; the sub-agent goes
// on, and agent:wait waits for it. When the caller's turn fails or is cancelled, core cancels what was
// given in it; see [event.TurnFailed].
package subagents
