// Package pool keeps clean sandboxes ready: started, with a started interpreter in them,
// and nobody's yet. Whoever needs one gets it at once and it is never used again for
// somebody else.
//
// # Order
//
// Every sandbox has an owner. Those who wait are served by owner, the one with the fewest
// sandboxes first, and for each owner in the order in which they came. An owner gets another
// sandbox only while it has fewer than twice as many as are free for others, so that alone it
// may have two thirds of all. While the pool is at its maximum, or an owner has its share,
// they wait until one is given back; [Config].Full is called, so that one can be given
// back that is not needed.
//
// # Failure
//
// A start that fails is the answer to the one who waits for it. In the background the
// pool tries again, ever less often; [Stats] has the last error. A warm sandbox that dies
// is replaced. What cannot be destroyed is left to the driver's reaper.
package pool
