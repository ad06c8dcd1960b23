// Package rights knows who may do what on the bus: it compiles the declaration schemas/rights.yaml
// into the permissions of a NATS server.
//
// A service is a user of the system's account with permissions ([Declaration.Service]). A plugin,
// listener or program from outside has an account for itself, whose imports are what its
// [Charter] grants ([Declaration.Party]). The package uses no network and keeps nothing; package
// trust makes credentials of what it returns.
package rights
