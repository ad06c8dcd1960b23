// Package pool keeps clean sandboxes ready: started, with a running interpreter, and not yet
// owned. A caller gets one at once, and it is never reused for another caller.
//
// # Order
//
// Every sandbox has an owner. Waiters are served by owner, the one with the fewest sandboxes
// first, and for each owner in the order of arrival. An owner gets another sandbox only while
// it has fewer than twice as many as are free for others, so that a single owner may have two
// thirds of all. While the pool is at its maximum, or an owner has its share, waiters wait
// until a sandbox is given back. [Config].Full is called then, so that an unneeded one can be
// given back.
//
// # Failure
//
// When a start fails, the waiter gets its error. In the background the pool retries, with
// backoff; [Stats] has the last error. A warm sandbox that dies is replaced. The driver's
// reaper removes whatever the pool cannot destroy.
package pool
