// Package mqtt is the listener that subscribes to topics of an MQTT broker. Rules (see package
// mapping) say which messages become inputs.
//
// # Guarantee
//
// With qos 1 (the default) a message is acknowledged to the broker once everything that
// follows from it is durable: its input, the state of its rule, or the decision that there is
// none. The client id and a session that the broker keeps (clean session false) make it hold
// back and deliver again what was not acknowledged, whichever process dies. Such a delivery is
// recognized by its packet id, topic and payload, and is the same input. It is recognized
// among the last 128 messages that had an effect on a topic, so the broker must not have more
// in flight (mosquitto: max_inflight_messages, default 20; NATS: 100).
//
// With qos 0 nothing is acknowledged: a message that arrives while too many wait is dropped
// and counted, and what is received while the process dies is lost.
//
// # Topics
//
// A retained message is the last known state, not news; a topic ignores it unless retained is
// true, and then it counts once for each value. Two topics of a listener must be equal or not
// overlap, because some brokers deliver a message for each subscription. Messages on the
// listener's own topics (skandha/<listener>/…, and those of the Home Assistant discovery) are
// never inputs.
//
// # Home Assistant
//
// With home_assistant the listener announces the agent as a device by MQTT discovery: a text
// to say something, the state of the agent and its last answer. The device is available while
// the listener is connected; the broker publishes its last will when it dies.
//
// # Failure
//
// The listener connects again, with growing pauses up to a minute; a broker that hangs is
// noticed within 30 seconds. While the bus is away, messages wait, at the broker with qos 1.
// A message above max_payload of the broker, or one that is not UTF-8, is dropped, counted and
// acknowledged. Two processes with the same client id disconnect each other: run one.
package mqtt
