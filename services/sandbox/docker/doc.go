// Package docker isolates with containers of a Docker engine, 20.10 or newer.
//
// A sandbox is one container: without a network, a capability or a writable root, under
// an unprivileged user, with a seccomp profile of our own and bounded memory, CPU,
// processes and files. What it is made of are constants and [driver.Limits]. Where
// the engine offers gVisor (runsc), sandboxes run on its kernel instead of the host's.
//
// The agent is the container's first process, on purpose without Docker's own init
// in front of it: as process 1 it cannot be killed from inside, and it inherits
// and ends what runs leave behind, which it could not as a child of tini.
//
// # What is left when a service dies
//
// Nothing. The service holds the standard input of each of its containers, and the
// engine closes it when the service's connection ends, kill -9 included; the agent
// then ends, and the engine removes the container at once (AutoRemove). Tried on
// engine 20.10: gone after 0.15 s.
//
// An agent that untrusted code has taken over could stay. So every connection of a
// driver to an engine first starts a lease: a small container that runs nothing
// but "wait until standard input ends", under the connection's random id, which all
// sandboxes bear too. While the lease runs, the service is alive, whichever host it
// is on; Reap, of this or any other service with the same owner, removes what has
// no running lease. Clocks of two hosts are never compared. Over TCP, the death of
// a whole host is noticed when TCP does, minutes later.
//
// When the engine or the connection to it ends, all its sandboxes have ended; the next
// Start makes a new connection.
//
// # Package sets
//
// A set is two volumes: one of a random name with the packages, and after all
// is done an empty one named after the set, whose label says where they are.
// Making a volume is atomic, so a set is there whole or not at all, and of two
// services that install the same set at once one wins. What no set points to is
// removed by Reap once its service is dead. When a set was last used is known to
// the service that used it alone; to others it is the time when it was made.
//
// Containers and volumes without our owner label are never touched.
//
// # What it cannot stop
//
// With runc, sandboxes share the host's kernel: a hole in it that the seccomp profile
// leaves open is a way out. Each sandbox runs under a user id of its own, so what the
// kernel counts per user (inotify instances, descriptors in flight, pipe buffers,
// pending signals) one sandbox cannot use up for the others; the image knows no name of
// that user.
//
// With gVisor that is not so, but a fork bomb ends the whole sandbox, and the number of
// files is bounded by memory alone.
//
// With runc there are no pseudo-terminals, since all sandboxes and the host would share them.
//
// Of an image only its files are used. Its environment is not the sandboxes', its health
// check does not run, and where it declares a volume, sandboxes have an empty directory that
// cannot be written to: otherwise the engine would make a volume on the host's disk.
//
// Sizes of package sets are checked twice a second, and a set may exceed its bound
// until then. What a particular engine does not hold, [Driver.Report] says.
package docker
