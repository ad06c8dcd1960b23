// Package backend implements contract.Backend over the bus, for the transports of the UI
// bridge.
//
// # Subjects
//
//	agent.<agent>.<session>.sense.{input,command,confirmation,cancel}.<writer>   stored causes
//	service.core.session, service.core.status                                    requests
//
// Package hub reads the log and the live copies for feeds. Everything uses one connection;
// each principal writes under its own name.
//
// # Guarantee
//
// Every call checks the principal's right first, then each field, and its error names the
// wrong one. A receipt means that the log has acknowledged the cause: from then on an input
// ends in exactly one terminal event, whichever process dies.
//
// # Failure
//
// Without the bus or core the error is CodeUnavailable. The input may have been stored
// then: sending it again with the same id is safe.
package backend
