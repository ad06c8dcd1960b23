// Package sandboxtest is what every driver of the sandbox must pass: a
// conformance suite, which says what a sandbox is, and a probe suite, which tries to
// get out of one or to do harm with one.
//
// Everything goes the way that the service goes: [driver.Driver], the agent that
// runs in the sandbox, and [agent.Conn]. A driver's test calls [Run] with a [Suite].
//
// # Probes
//
// A probe is hostile code, run in a sandbox, and what must be seen from outside. It
// passes when the code was refused, or was bounded, or did reach nothing; when
// the host's canaries (files, listeners, a process, a variable) are unharmed and
// unseen; when a neighbour, a sandbox that runs all the time, still answers; and when
// its own sandbox answers again or is broken with an error that says why. When the
// sandbox is destroyed, nothing of it is there 5 s later: no process, container,
// mount or cgroup.
//
// What a driver cannot stop is named in [Suite].Skip with the reason, skipped
// aloud and listed in the table that the suite prints at its end. That table is
// also appended to the file that SKANDHA_PROBE_REPORT names. A limit that the
// driver reports as missing skips its probes likewise, and fails them where
// SKANDHA_REQUIRE=all. SANDBOXTEST_GROUP runs one group alone: conformance,
// resources, host, kernel, files, io or lifecycle.
//
// # Failure
//
// A probe that fails is a hole, not a flaky test: the suite waits with patience
// for what must happen, and asserts no duration but the 5 s above.
// TestProbesFindHoles runs the probes against sandboxes that are weak on purpose.
package sandboxtest
