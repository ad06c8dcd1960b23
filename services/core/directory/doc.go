// Package directory knows the executors that serve this core: which have announced themselves,
// which tools and providers they offer, and which of their slots are free.
//
// Consumes: announcements of executors. Produces: requests that executors announce
// themselves, after the start.
//
// Order: sessions that wait for a slot are served first come, first served; cores share
// slots in proportion to their waiting sessions (share.go), by what their beacons say. A
// slot is claimed when a decision picks it, and given back if the decision is not stored.
//
// Failure: an executor that has been silent for the TTL is dropped, and one without
// responders is not picked until it announces itself again. Numbers of slots may be out of
// date for a moment; an executor refuses work that it has no slot for.
//
// Testing: without a server, by announcements.
package directory
