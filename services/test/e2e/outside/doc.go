// Package outside holds the promise that a message leaves once, against real servers: Postfix and
// Dovecot, ngircd, mosquitto and an HTTP server that honours Idempotency-Key. While turns come in by
// mail, chat and MQTT and go out by all of them, every process is killed with SIGKILL again and
// again: cores, tool runners, the provider, the listeners, the bus and the servers themselves.
//
// What left is counted at the servers, not in Skandha. SKANDHA_OUTSIDE=2000 sets the number of turns;
// the default is a short run. SKANDHA_SEED repeats the choices of a run.
package outside
