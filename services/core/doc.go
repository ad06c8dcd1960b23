// Package core is the service that runs the loop sense → plan → act → reflect. Any
// number of replicas work on the same sessions, without a leader. Package shell
// implements the loop and package decide the decisions; this package reads the
// configuration and starts the service.
package core
