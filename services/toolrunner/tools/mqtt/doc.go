// Package mqtt is the tool mqtt:publish. It publishes on the topics that the configuration of a
// broker allows (section mqtt, key publish), over a connection of each call's own.
//
// # What became of a call
//
// A call with qos 1 or 2 subscribes to its own topic before it publishes, in a session that the
// broker keeps under a client id derived from the call's key. When its result is lost, the probe
// takes over that session, which ends the connection of the earlier attempt: if the broker holds
// a copy of the message for it, the message was published; if it holds none although the session
// is there, it was not. A retained message is also looked up. Without such a session (qos 0, or
// a user that may not subscribe) the outcome stays unknown.
package mqtt
