// Package e2e holds the promises of the design against real processes: cores,
// providers, tool runners and a NATS server that are killed with SIGKILL,
// stopped with SIGSTOP and cut off from each other.
//
// The verdict is that of an outside observer (package e2etest): it reads the log
// over a separate connection, with separate types, and the file to which the
// tools append one line per effect. It believes nothing that a core says of
// itself.
//
// A run prints its seed; SKANDHA_SEED repeats its choices. SKANDHA_E2E=long makes
// the runs longer, SKANDHA_E2E=short shorter, and SKANDHA_E2E=usual neither;
// without it, SKANDHA_REQUIRE=all implies long.
// SKANDHA_E2E_KEEP=<directory> keeps the logs of the processes.
package e2e
