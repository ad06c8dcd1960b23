// Package driver is the contract between the sandbox service and the technology that
// isolates for it: Docker containers, or bubblewrap.
//
// A driver starts sandboxes. A sandbox is a separate process tree with its own root. It
// sees no network, no host and no other sandbox. Its first process is a Python interpreter
// that runs [Spec].Args (the agent, see services/sandbox/agent). The service talks to it
// only through the sandbox's pipe: a driver never copies files in or out, and never runs a
// command in a running sandbox.
//
// # Guarantee
//
// What a sandbox may use follows from constants and from [Limits], never from anything a
// model sent. When Destroy has returned, nothing of the sandbox is left. When the service
// dies, all its sandboxes are removed within [Driver].Reap's period at the latest. A driver
// never touches anything that does not have our labels.
//
// All drivers pass the same suite, services/test/sandboxtest. A driver lists what it
// cannot prevent in its [Report], and the suite skips those probes by name.
package driver
