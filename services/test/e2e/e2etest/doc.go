// Package e2etest runs a system of real processes for a test and judges its log.
//
// Every process is the test binary itself, run again with a role in its
// environment: nothing has to be built, and under -race every process is a race
// detector. Roles are core (the same calls as its main), nats, provider (a model
// that does what the input's [Script] says) and runner (tools that append their
// effects to a file). A process that ends without being stopped fails the
// test.
//
// [Tail] reads the log as it grows, [Audit] judges it.
package e2etest
