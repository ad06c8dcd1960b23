package mqtt_test

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"testing"

	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/mqttclient"
	"skandha.dev/services/internal/natsserver"
	"skandha.dev/services/listener/mapping"
	"skandha.dev/services/listener/mqtt"
	"skandha.dev/services/test/listenertest"
	"skandha.dev/services/test/natstest"
)

// embedded starts a NATS server that speaks MQTT.
func embedded(t *testing.T) mqttclient.Config {
	t.Helper()
	port := natstest.FreePort(t)
	natstest.Start(t, natstest.WithConfig(func(c *natsserver.Config) {
		c.Token = "bus"
		c.MQTT = &natsserver.MQTT{Addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), Password: "devices"}
	}))
	return mqttclient.Config{"house": {URL: fmt.Sprintf("mqtt://127.0.0.1:%d", port), User: "test", Password: "devices"}}
}

// publisher connects a device.
func publisher(t *testing.T, b mqttclient.Broker) *mqttclient.Conn {
	t.Helper()
	c, err := b.Dial(natstest.Context(t), mqttclient.Options{ClientID: "device", Clean: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(0) })
	return c
}

func conformance() mapping.Config {
	return mapping.Config{Session: string(listenertest.Ref.Session), TextTemplate: "{{.text}}"}
}

func TestItPassesTheSuiteOfListeners(t *testing.T) {
	listenertest.Run(t, func(t *testing.T, b *journal.Journal) listenertest.Subject {
		brokers := embedded(t)
		l, err := mqtt.New("house", mqtt.Config{
			Topics: map[string]mqtt.Topic{"say": {Topic: "house/say", Config: conformance()}},
		}, mqtt.Deps{Bus: b, Brokers: brokers, Logger: natstest.Logger(t)})
		if err != nil {
			t.Fatal(err)
		}
		device := publisher(t, brokers["house"])
		return listenertest.Subject{
			Listener: l, Keeps: true,
			Say: func(ctx context.Context, text, _ string) error {
				natstest.Eventually(t, "the listener is connected", func() bool { return l.Subscribed() || ctx.Err() != nil })
				return device.Publish(ctx, mqttclient.Message{Topic: "house/say", Payload: []byte(text), QoS: 1})
			},
		}
	})
}
