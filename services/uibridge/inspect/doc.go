// Package inspect provides the methods for viewing a system: sessions, tools, plugins,
// hooks and executors as core knows them, a session's turns, one turn as a waterfall, the
// artifacts that tools handed over, what agents remember, the listeners, and the messages to
// people that are not delivered.
//
// It asks core on service.core.{tools,sessions,session,status,hooks,plugins,plugin,memory,outbox},
// with one request and one answer each, and reads the log, the object store of artifacts and the
// bucket listeners. Answers whose types only core has are passed on unchanged. What changes
// something is done by core, except that switchListener writes the switch of a camera or
// microphone, which its listener follows. pluginAction suspends, resumes or unloads a plugin, and
// outboxAction sends a dead message again or drops one; these three are for principals with the
// right "administer"; addMemory, correctMemory and forgetMemory change what
// an agent remembers, for those with the right "talk". schemas/ui/methods and schemas/ui/results
// define the parameters and answers of all methods.
//
// A principal only sees the agents that it may access. All work is limited in time, commits
// and bytes, and an answer reports where a limit cut something off. When core or the bus
// does not answer, the error is [contract.CodeUnavailable]; a retry is safe.
package inspect
