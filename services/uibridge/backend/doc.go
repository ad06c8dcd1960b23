// Package backend is what the doors of the UI bridge stand on: it implements
// contract.Backend over the bus.
//
// # What it writes and asks
//
//	agent.<agent>.<session>.sense.{input,command,confirmation,cancel}.<writer>   stored causes
//	service.core.session, service.core.status                                    questions
//
// What it reads for feeds is the hub's (package hub). All of it goes over one
// connection; each principal writes under a name of his own.
//
// # What is promised
//
// Every call checks the principal's right first, then each field, and names the one
// that is wrong. A receipt means that the log has acknowledged the cause: from then on
// an input ends in exactly one terminal event, whatever dies.
//
// # When something fails
//
// Without bus or core the error is CodeUnavailable. What was said may have been stored
// then: saying it again with the same id is safe.
package backend
