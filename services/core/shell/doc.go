// Package shell is one core: it starts, wires, serves and stops the packages that do the
// work. Causes go to package session, which drives turns; states come from package loader,
// executors and their slots from package directory, hooks and guides from package plugins,
// and package view writes what is read without the log. What is done here is the rest: the
// requests that core answers, the beacon, and what happens when streams are lost.
//
// Consumes: causes (durable pull consumer "core", shared by all replicas),
// fired timers, announcements of executors, answers under its own reply prefix,
// requests to service.core.<verb>.
// Produces: timer causes, beacons, requests of internal calls to executors, and what the
// other packages produce.
//
// Guarantee, order and failure of turns are those of package session.
package shell
