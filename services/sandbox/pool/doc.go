// Package pool keeps clean boxes ready: started, with a started interpreter in them,
// and nobody's yet. Whoever needs one gets it at once and it is never used again for
// somebody else.
//
// # Order
//
// Who waits for a box is served in the order in which they came. While the pool is at
// its maximum, they wait until one is given back; [Config].Full is told, so that
// somebody can give one back that is not needed.
//
// # Failure
//
// A start that fails is the answer to the one who waits for it. In the background the
// pool tries again, ever less often; [Stats] has the last error. A warm box that dies
// is replaced. What cannot be destroyed is left to the driver's reaper.
package pool
