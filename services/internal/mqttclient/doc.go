// Package mqttclient connects to MQTT brokers (MQTT 3.1.1, over eclipse/paho). It owns the
// section mqtt of the configuration file, which names the brokers once, for the listener that
// subscribes and the tool that publishes:
//
//	mqtt:
//	  house:
//	    url: mqtts://broker.example.org:8883
//	    user: skandha
//	    password: env:MQTT_PASSWORD
//	    ca: /etc/skandha/broker-ca.pem
//	    publish: [house/+/set]      # what the tool mqtt:publish may publish
//
// # Guarantee
//
// A [Conn] is one connection: it does not connect again, and what is acknowledged on it
// belongs to it. [Conn.Done] is closed when it is lost.
//
// # Failure
//
// A broker that does not answer is noticed by the keep-alive, one that does not read by the
// write timeout. A packet that a broker announces with a greater length than is allowed is not
// kept in memory: of a message the rest is skipped, and any other packet ends the connection.
package mqttclient
