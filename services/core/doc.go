// Package core is the service that runs the loop sense → plan → act → reflect:
// any number of replicas work on the same sessions, without a leader. The loop
// is in package shell, the decisions are in package decide; this package is
// configuration and start.
package core
