// Package driver is the contract between the sandbox service and what isolates
// for it: Docker containers, or bubblewrap.
//
// A driver starts sandboxes. A sandbox is one sandbox: a process tree of its own, with
// its own root, which sees no network, no host and no neighbour, and whose first
// process is a Python interpreter that runs what [Spec].Args say (the agent, see
// services/sandbox/agent). The service speaks to it through the sandbox's pipe and
// by no other way: a driver never copies files in or out, and never runs a
// command in a sandbox that stands.
//
// # Guarantee
//
// What a sandbox may use is made of constants and of [Limits], never of anything
// that came from a model. When Destroy has returned, nothing of the sandbox is left.
// When the service dies, all its sandboxes are gone within [Driver].Reap's period at
// the latest; what is not labelled as ours is never touched.
//
// All drivers pass the same suite, services/sandbox/sandboxtest. What one cannot
// stop is said in its [Report], and skipped there by name.
package driver
