// Package trust makes the credentials of a system: decentralised JWTs, by which a NATS server knows
// who is connected and what that identity may do. It asks no network: the server checks
// signatures by itself, with what [Authority.Server] gives it.
//
// There is one operator per system, the system's account, in which its services are users, and an
// account for each party: a plugin, listener or program from outside. The permissions come from
// package rights.
//
// A service has a [Key]. Each of its processes makes its own credentials with it: the permissions
// name the process, and no other process can show that name, because it lacks the private key. A
// party has one credential per [Authority.Admit]; its account limits it, so that it needs no
// other permissions.
//
// The keys are in one file, which only the owner may read. Who has it can do everything.
package trust
