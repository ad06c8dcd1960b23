package natsserver_test

import (
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"skandha.dev/services/internal/mqttclient"
	"skandha.dev/services/internal/natsserver"
	"skandha.dev/services/test/natstest"
)

func withMQTT(port int) natstest.Option {
	return natstest.WithConfig(func(c *natsserver.Config) {
		c.Addr, c.Token = "127.0.0.1:-1", "of-the-bus"
		c.MQTT = &natsserver.MQTT{Addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), Password: "of-devices"}
	})
}

func broker(port int) mqttclient.Broker {
	return mqttclient.Broker{URL: "mqtt://127.0.0.1:" + strconv.Itoa(port), User: "device", Password: "of-devices"}
}

func receive[T any](t *testing.T, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-natstest.Context(t).Done():
		t.Fatal("nothing arrived")
	}
	return v
}

func TestDevicesReachEachOtherAndNothingOfTheBus(t *testing.T) {
	port := natstest.FreePort(t)
	s := natstest.Start(t, withMQTT(port))
	ctx := natstest.Context(t)
	natstest.EnsureStreams(t, natstest.Connect(t, s))
	spy, err := nats.Connect(s.ClientURL(), nats.Token("of-the-bus"))
	if err != nil {
		t.Fatal(err)
	}
	defer spy.Close()
	seen, err := spy.SubscribeSync(">")
	if err == nil {
		err = spy.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan mqttclient.Message, 8)
	in, err := broker(port).Dial(ctx, mqttclient.Options{ClientID: "in", Receive: func(m mqttclient.Message) { m.Ack(); got <- m }})
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close(0)
	if err := in.Subscribe(ctx, map[string]byte{"#": 1}); err != nil {
		t.Fatal(err)
	}
	out, err := broker(port).Dial(ctx, mqttclient.Options{ClientID: "out", Clean: true})
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close(0)
	const forged = "agent/main/s1/sense/input/w"
	if err := out.Publish(ctx, mqttclient.Message{Topic: forged, Payload: []byte("{}"), QoS: 1}); err != nil {
		t.Fatal(err)
	}
	if m := receive(t, got); m.Topic != forged {
		t.Errorf("got %s", m.Topic)
	}
	if m, err := seen.NextMsg(50 * time.Millisecond); err == nil && strings.HasPrefix(m.Subject, "agent.") {
		t.Errorf("the bus got %s from a device", m.Subject)
	}
}

func TestMQTTAsksForItsPassword(t *testing.T) {
	port := natstest.FreePort(t)
	s := natstest.Start(t, withMQTT(port))
	for _, wrong := range []string{"", "of-the-bus", "else"} {
		b := broker(port)
		b.Password = wrong
		if c, err := b.Dial(natstest.Context(t), mqttclient.Options{ClientID: "x", Clean: true}); err == nil {
			c.Close(0)
			t.Errorf("a device with the password %q was let in", wrong)
		}
	}
	for _, wrong := range []nats.Option{nats.Token("of-devices"), nats.Token(""), nats.UserInfo("x", "of-the-bus")} {
		if c, err := nats.Connect(s.ClientURL(), wrong); err == nil {
			c.Close()
			t.Error("a client of the bus was let in")
		}
	}
}

func TestWhatDevicesStoredOutlivesARestart(t *testing.T) {
	port := natstest.FreePort(t)
	s := natstest.Start(t, withMQTT(port))
	ctx := natstest.Context(t)
	natstest.EnsureStreams(t, natstest.Connect(t, s))
	c, err := broker(port).Dial(ctx, mqttclient.Options{ClientID: "out", Clean: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Publish(ctx, mqttclient.Message{Topic: "lamp", Payload: []byte("on"), QoS: 1, Retain: true}); err != nil {
		t.Fatal(err)
	}
	if err := s.Restart(0); err != nil {
		t.Fatal(err)
	}
	receive(t, c.Done())
	got := make(chan mqttclient.Message, 1)
	c, err = broker(port).Dial(ctx, mqttclient.Options{
		ClientID: "in", Clean: true, Receive: func(m mqttclient.Message) {
			select {
			case got <- m:
			default:
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(0)
	// The server reads what it retains in the background; until then, a subscription gets nothing.
	natstest.Eventually(t, "the retained message", func() bool {
		if err := c.Subscribe(ctx, map[string]byte{"lamp": 1}); err != nil {
			t.Fatal(err)
		}
		select {
		case m := <-got:
			return string(m.Payload) == "on" && m.Retain
		default:
			return false
		}
	})
}

// The broker of a deployed system, as its file describes it.
func TestTheDeployedBroker(t *testing.T) {
	t.Setenv("SKANDHA_MQTT_PASSWORD", "of-devices")
	t.Setenv("SKANDHA_MQTT_DATA", t.TempDir())
	o, err := server.ProcessConfigFile("../../../deploy/nats/mqtt.conf")
	if err != nil {
		t.Fatal(err)
	}
	o.Port, o.MQTT.Port, o.NoSigs, o.NoLog = -1, natstest.FreePort(t), true, true
	s, err := server.NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(natstest.Patience) {
		t.Fatal("the broker is not ready")
	}
	c, err := broker(o.MQTT.Port).Dial(natstest.Context(t), mqttclient.Options{ClientID: "x", Clean: true})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(0)
	if err := c.Publish(natstest.Context(t), mqttclient.Message{Topic: "t", QoS: 1}); err != nil {
		t.Error(err)
	}
	wrong := broker(o.MQTT.Port)
	wrong.Password = "else"
	if c, err := wrong.Dial(natstest.Context(t), mqttclient.Options{ClientID: "y", Clean: true}); err == nil {
		c.Close(0)
		t.Error("a device with a wrong password was let in")
	}
}
