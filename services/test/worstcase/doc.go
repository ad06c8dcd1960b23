// Package worstcase tests what holds if the model obeys everybody: a whole system with the policy
// that it is shipped with, the model of test/obedient, and a person who approves only what the
// person has asked for. Everything that may be reached counts from outside of the system what
// arrives: a web server, an MQTT broker, a listener's deliveries, files, other sessions.
package worstcase
