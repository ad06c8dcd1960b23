// Package tools says what the sandbox's tools are, and turns the arguments of a call
// into what is to be done in a sandbox.
//
// A call is read before there is a sandbox ([Tool].Read), so that arguments that make
// no sense cost none. What is read is either a run ([Job].Run), which the service
// carries out since it concerns more than the sandbox (packages, streaming, artifacts),
// or an operation on files ([Job].Do).
//
// Paths are the sandbox's: relative ones lie below its workspace. They are confined by
// the agent inside, in whose process they are opened; nothing here touches the host's
// file system.
package tools
