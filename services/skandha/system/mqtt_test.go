package system_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/mqttclient"
	"skandha.dev/services/internal/senses"
	"skandha.dev/services/internal/submit"
	"skandha.dev/services/skandha/system"
	"skandha.dev/services/test/natstest"
)

// withMQTT starts a system that speaks MQTT, and returns how devices reach it.
func withMQTT(t *testing.T, config string, change func(*system.Config)) (*system.System, mqttclient.Broker) {
	t.Helper()
	addr := fmt.Sprintf("127.0.0.1:%d", natstest.FreePort(t))
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := system.Config{
		Data: t.TempDir(), ConfigFile: file, Sync: "relaxed", Provider: "offline", MQTT: addr, Log: natstest.Logger(t),
	}
	if change != nil {
		change(&cfg)
	}
	s, err := system.Start(natstest.Context(t), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	return s, mqttclient.Broker{URL: "mqtt://" + addr, User: "device", Password: "file:" + s.MQTTPasswordFile()}
}

func device(t *testing.T, b mqttclient.Broker, o mqttclient.Options) *mqttclient.Conn {
	t.Helper()
	o.Clean = true
	c, err := b.Dial(natstest.Context(t), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(0) })
	return c
}

func TestAMessageOfADeviceSwitchesALamp(t *testing.T) {
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(rules, []byte(`
rules:
  - name: lamp
    match: ['the window is open']
    calls: [{tool: 'mqtt:publish', args: {topic: house/lamp/set, payload: 'on', retain: true}}]
results: {default: {success: 'done', failure: '{{.error.message}}'}}
missing: 'no {{.tool}}'
fallback: 'what?'
`), 0o600); err != nil {
		t.Fatal(err)
	}
	s, broker := withMQTT(t, `
mqtt: {embedded: {publish: [house/+/set]}}
policy: [{tool: "mqtt:publish", effect: allow, reason: the lamp is harmless}]
listeners:
  mqtt:
    house:
      topics: {window: {topic: house/window, session: house, on_change: true, text_template: "the window is {{.value}}"}}
      home_assistant: {session: house}
`, func(c *system.Config) { c.OfflineRules = rules })
	got := make(chan mqttclient.Message, 64)
	lamp := device(t, broker, mqttclient.Options{ClientID: "lamp", Receive: func(m mqttclient.Message) { m.Ack(); got <- m }})
	ctx := natstest.Context(t)
	if err := lamp.Subscribe(ctx, map[string]byte{"house/lamp/set": 1, "skandha/house/+": 1, "homeassistant/#": 1}); err != nil {
		t.Fatal(err)
	}
	await := func(topic, text string) {
		t.Helper()
		for {
			select {
			case m := <-got:
				if m.Topic == topic && strings.Contains(string(m.Payload), text) {
					return
				}
			case <-ctx.Done():
				t.Fatalf("nothing with %q on %s", text, topic)
			}
		}
	}
	// It is announced each time that Home Assistant starts, before it is available.
	birth := mqttclient.Message{Topic: "homeassistant/status", Payload: []byte("online"), QoS: 1}
	for range 2 {
		natstest.Eventually(t, "the listener is connected", func() bool { return s.Metrics()["listener_state_ok"] == 1 })
		if err := lamp.Publish(ctx, birth); err != nil {
			t.Fatal(err)
		}
		await("homeassistant/text/skandha_house/say/config", `"command_topic":"skandha/house/say"`)
		await("skandha/house/status", "online")
	}
	if err := lamp.Publish(ctx, mqttclient.Message{Topic: "house/window", Payload: []byte("open"), QoS: 1}); err != nil {
		t.Fatal(err)
	}
	await("house/lamp/set", "on")
	await("skandha/house/answer", "done")
	if err := lamp.Publish(ctx, mqttclient.Message{Topic: "skandha/house/say", Payload: []byte("hello"), QoS: 1}); err != nil {
		t.Fatal(err)
	}
	await("skandha/house/answer", "what?")
}

// flood is 10,000 messages a second for 10 seconds.
const flood = 100_000

func TestAFloodOfMessagesIsBoundedByItsRule(t *testing.T) {
	s, broker := withMQTT(t, `
listeners:
  mqtt:
    house:
      qos: 0
      topics: {all: {topic: flood/+, session: flooded, every: 1h}}
`, nil)
	b := natstest.Join(t, s, "looker")
	natstest.Eventually(t, "the listener is ok", func() bool {
		all, err := senses.List(natstest.Context(t), b)
		return err == nil && len(all) == 1 && all[0].State == "ok"
	})
	person := subject.Ref{Agent: "main", Session: "person"}
	answered := make(chan struct{}, 1)
	if _, err := b.Conn().Subscribe(person.All(), func(m *nats.Msg) {
		if e, err := event.Decode(m.Data); err == nil && e.Type == event.TypeRecorded {
			answered <- struct{}{}
		}
	}); err != nil {
		t.Fatal(err)
	}
	ctx := natstest.Context(t)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	sensor := device(t, broker, mqttclient.Options{ClientID: "sensor"})
	payload := []byte(strings.Repeat("x", 100))
	for i := range flood {
		if err := sensor.Publish(ctx, mqttclient.Message{Topic: fmt.Sprintf("flood/%d", i%3), Payload: payload}); err != nil {
			t.Fatal(err)
		}
		if i == flood/2 {
			if _, err := (submit.Sender{Bus: b.Bus, Writer: "person"}).Say(ctx, person, event.Input{Text: "what is 2+2?", ID: "1"}); err != nil {
				t.Fatal(err)
			}
		}
	}
	select {
	case <-answered:
	case <-ctx.Done():
		t.Fatal("a person's turn did not end")
	}
	count := func(name string) int64 { return s.Metrics()["listener_mqtt_"+name] }
	natstest.Eventually(t, "all messages are accounted for", func() bool { return count("readings")+count("dropped_full") == flood })
	natstest.Eventually(t, "the readings are limited", func() bool { return count("dropped_rate") == count("readings")-3 })
	if n := s.Metrics()["listener_inputs"]; n != 3 {
		t.Errorf("%d inputs for 3 topics, want one each", n)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 64<<20 { //nolint:gosec // sizes of a heap
		t.Errorf("the heap has grown by %d MiB", grown>>20)
	}
	t.Logf("%d readings, %d dropped because too many waited", count("readings"), count("dropped_full"))
}
