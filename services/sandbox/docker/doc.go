// Package docker isolates with containers of a Docker engine, 20.10 or newer.
//
// A sandbox is one container: without a network, a capability or a writable root, under an
// unprivileged user, with our own seccomp profile and bounded memory, CPU, processes and
// files. It is configured only by constants and [driver.Limits]. Where the engine offers
// gVisor (runsc), sandboxes run on its kernel instead of the host's.
//
// Package form makes the requests, and package proxy filters them by the same code: with a
// proxy between the driver and the engine, nothing else that this process might be made to
// send gets to the engine. The driver's tests run through a proxy.
//
// The agent is the container's first process, deliberately without Docker's init: as
// process 1 it cannot be killed from inside, and it inherits and ends what runs leave
// behind, which it could not do as a child of tini.
//
// # What is left when a service dies
//
// Nothing. The service holds the standard input of each of its containers, and the engine
// closes it when the service's connection ends, including by kill -9; the agent then ends,
// and the engine removes the container at once (AutoRemove). On engine 20.10 this took
// 0.15 s.
//
// An agent that untrusted code has taken over might stay. Therefore every connection of a
// driver to an engine first starts a lease: a small container that only waits until its
// standard input ends. It is labelled with the connection's random id, as all its sandboxes
// are. While the lease runs, the service is alive, on whichever host; Reap, of this or any
// other service with the same owner, removes everything without a running lease. It never
// compares the clocks of two hosts. Over TCP, the death of a whole host is noticed when TCP
// does, minutes later.
//
// When the engine or the connection to it ends, all its sandboxes have ended; the next
// Start opens a new connection.
//
// # Package sets
//
// A set is two volumes: one of a random name with the packages and, once that is complete,
// an empty one named after the set, whose label names the first. Creating a volume is
// atomic, so a set exists completely or not at all, and of two services that install the
// same set concurrently one wins. Reap removes volumes without a set once their service is
// dead. Only the service that used a set knows when; for others the time of use is the
// creation time.
//
// Containers and volumes without our owner label are never touched.
//
// # What it cannot prevent
//
// With runc, sandboxes share the host's kernel: a vulnerability in it that the seccomp
// profile does not block allows an escape. Each sandbox runs under a separate user id, so
// one sandbox cannot exhaust the kernel's per-user limits (inotify instances, descriptors in
// flight, pipe buffers, pending signals) for the others; the image has no name for that
// user.
//
// With gVisor these do not apply, but a fork bomb ends the whole sandbox, and only memory
// bounds the number of files.
//
// With runc there are no pseudo-terminals, since all sandboxes and the host would share
// them.
//
// Only an image's files are used. Its environment does not reach the sandboxes, its health
// check does not run, and where it declares a volume, sandboxes have an empty read-only
// directory: otherwise the engine would create a volume on the host's disk.
//
// Sizes of package sets are checked twice a second, and a set may exceed its bound until
// then. [Driver.Report] lists what a particular engine does not enforce.
package docker
