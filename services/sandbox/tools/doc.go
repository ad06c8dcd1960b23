// Package tools defines the sandbox's tools, and turns the arguments of a call into a job
// for a sandbox.
//
// A call's arguments are read before there is a sandbox ([Tool].Read), so that invalid
// arguments do not cost one. The result is either a run ([Job].Run), which the service
// carries out since it involves more than the sandbox (packages, streaming, artifacts),
// or an operation on files ([Job].Do).
//
// Paths are the sandbox's: relative ones are below its workspace. The agent in the sandbox,
// whose process opens them, confines them; this package never touches the host's file
// system.
package tools
