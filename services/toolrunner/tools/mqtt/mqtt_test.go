package mqtt

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/mqttclient"
	"skandha.dev/services/test/mosquittotest"
	"skandha.dev/services/test/natstest"
	"skandha.dev/services/toolrunner/tools"
)

// rig is the tool with a broker, and a device that listens to all topics.
type rig struct {
	tools.Tool
	broker *mosquittotest.Broker
	got    chan mqttclient.Message
}

func newRig(t *testing.T) *rig {
	t.Helper()
	b := mosquittotest.Start(t)
	house := b.Client()
	house.Publish = []string{"house/+/set"}
	list := publishing(mqttclient.Config{"house": house, "silent": {URL: "mqtt://127.0.0.1:1"}}, 200*time.Millisecond)
	if len(list) != 1 {
		t.Fatalf("%d tools", len(list))
	}
	r := &rig{list[0], b, make(chan mqttclient.Message, 64)}
	device, err := b.Client().Dial(natstest.Context(t), mqttclient.Options{
		ClientID: "device", Clean: true, Receive: func(m mqttclient.Message) { m.Ack(); r.got <- m },
	})
	if err == nil {
		t.Cleanup(func() { device.Close(0) })
		err = device.Subscribe(natstest.Context(t), map[string]byte{"#": 1})
	}
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func call(args string, begin func(context.Context) error) tools.Call {
	if begin == nil {
		begin = func(context.Context) error { return nil }
	}
	return tools.Call{Key: "the key", Args: json.RawMessage(args), Begin: begin}
}

func code(r tool.Result) tool.Code {
	if r.Error == nil {
		return ""
	}
	return r.Error.Code
}

func (r *rig) next(t *testing.T) mqttclient.Message {
	t.Helper()
	select {
	case m := <-r.got:
		return m
	case <-natstest.Context(t).Done():
		t.Fatal("nothing was published")
		return mqttclient.Message{}
	}
}

func TestItPublishesOnAllowedTopicsAlone(t *testing.T) {
	r := newRig(t)
	ctx := natstest.Context(t)
	for qos := range 3 {
		args := fmt.Sprintf(`{"topic":"house/lamp/set","payload":"on %d","qos":%d}`, qos, qos)
		if res := r.Run(ctx, call(args, nil)); !res.Success {
			t.Errorf("qos %d: %+v", qos, res.Error)
		}
		if m := r.next(t); m.Topic != "house/lamp/set" || string(m.Payload) != fmt.Sprintf("on %d", qos) {
			t.Errorf("got %+v", m)
		}
	}
	for args, want := range map[string]string{
		`{"topic":"house/lamp","payload":""}`:                                       "not allowed",
		`{"topic":"house/+/set","payload":""}`:                                      "wildcard",
		`{"topic":"house/lamp/set/x","payload":""}`:                                 "not allowed",
		`{"broker":"silent","topic":"house/lamp/set","payload":""}`:                 "no broker",
		`{"topic":"house/l/set","payload":"` + strings.Repeat("x", 64<<10+1) + `"}`: "at most",
	} {
		begun := false
		res := r.Run(ctx, call(args, func(context.Context) error { begun = true; return nil }))
		if res.Success || begun || !strings.Contains(res.Error.Message, want) {
			t.Errorf("%.80s: %+v, begun %t; want %q", args, res, begun, want)
		}
	}
}

func TestItDoesNotActIfItMayNotBegin(t *testing.T) {
	r := newRig(t)
	ctx := natstest.Context(t)
	refuse := func(context.Context) error { return errors.New("closed") }
	if res := r.Run(ctx, call(`{"topic":"house/lamp/set","payload":"on"}`, refuse)); res.Success {
		t.Error("it succeeded")
	}
	if res := r.Run(ctx, call(`{"topic":"house/lamp/set","payload":"off"}`, nil)); !res.Success {
		t.Error(res.Error)
	}
	if m := r.next(t); string(m.Payload) != "off" {
		t.Errorf("%q was published", m.Payload)
	}
}

func retain(t *testing.T, b mqttclient.Broker, value string) {
	t.Helper()
	c, err := b.Dial(natstest.Context(t), mqttclient.Options{ClientID: "before", Clean: true})
	if err == nil {
		defer c.Close(time.Second)
		err = c.Publish(natstest.Context(t), mqttclient.Message{
			Topic: "house/lamp/set", Payload: []byte(value), QoS: 1, Retain: true,
		})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A runner dies after it has begun, before or after the broker has the message.
func TestAProbeFindsOutWhetherItWasPublished(t *testing.T) {
	const args = `{"topic":"house/lamp/set","payload":"on"}`
	for name, c := range map[string]struct {
		die  func(r *rig, conn *mqttclient.Conn, ctx context.Context) error
		want tool.Code
	}{
		"published": {func(_ *rig, conn *mqttclient.Conn, ctx context.Context) error {
			return conn.Publish(ctx, mqttclient.Message{Topic: "house/lamp/set", Payload: []byte("on"), QoS: 1})
		}, ""},
		"published, and the broker died": {func(r *rig, conn *mqttclient.Conn, ctx context.Context) error {
			err := conn.Publish(ctx, mqttclient.Message{Topic: "house/lamp/set", Payload: []byte("on"), QoS: 1})
			for err == nil && !r.broker.Stores("on") {
				if err = ctx.Err(); err == nil {
					err = conn.Publish(ctx, mqttclient.Message{Topic: "other", QoS: 1}) // it saves when something changes
				}
			}
			r.broker.Kill()
			r.broker.Run()
			return err
		}, ""},
		"not published": {func(*rig, *mqttclient.Conn, context.Context) error { return nil }, tool.CodeNotRun},
		"another one's value": {func(_ *rig, conn *mqttclient.Conn, ctx context.Context) error {
			return conn.Publish(ctx, mqttclient.Message{Topic: "house/lamp/set", Payload: []byte("off"), QoS: 1})
		}, tool.CodeNotRun},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			ctx := natstest.Context(t)
			// What a runner has done when it dies.
			p := publisher{brokers: mqttclient.Config{"house": mqttclient.Broker{
				URL: r.broker.Client().URL, Publish: []string{"#"}, MaxPayload: 1000,
			}}}
			req, err := p.check(call(args, nil), arguments{Topic: "house/lamp/set", Payload: "on"})
			if err != nil {
				t.Fatal(err)
			}
			if c.want == tool.CodeNotRun { // an equal value that was retained before says nothing
				retain(t, r.broker.Client(), "on")
			}
			conn, err := req.broker.Dial(ctx, mqttclient.Options{ClientID: req.clientID})
			if err == nil {
				err = conn.Subscribe(ctx, map[string]byte{"house/lamp/set": 1})
			}
			if err == nil {
				err = c.die(r, conn, ctx)
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := code(r.Probe(ctx, call(args, nil), tools.Begun{})); got != c.want {
				t.Errorf("the probe says %q, want %q", got, c.want)
			}
			// It leaves nothing at the broker, so that a second probe does not know.
			if got := code(r.Probe(ctx, call(args, nil), tools.Begun{})); got != tool.CodeOutcomeUnknown {
				t.Errorf("the second probe says %q", got)
			}
		})
	}
}

func TestAProbeReadsTheRetainedValue(t *testing.T) {
	r := newRig(t)
	ctx := natstest.Context(t)
	const on = `{"topic":"house/lamp/set","payload":"on","retain":true}`
	if res := r.Run(ctx, call(on, nil)); !res.Success {
		t.Fatal(res.Error)
	}
	if got := r.Probe(ctx, call(on, nil), tools.Begun{}); !got.Success {
		t.Errorf("the broker retains the value, and the probe says %+v", got.Error)
	}
	off := strings.Replace(on, "on", "off", 1)
	if got := code(r.Probe(ctx, call(off, nil), tools.Begun{})); got != tool.CodeOutcomeUnknown {
		t.Errorf("the broker retains another value, and the probe says %q", got)
	}
}

func TestWithoutABrokerThatIsThereNothingBegins(t *testing.T) {
	list := Tools(mqttclient.Config{"house": {URL: fmt.Sprintf("mqtt://127.0.0.1:%d", natstest.FreePort(t)), Publish: []string{"#"}}})
	begun := false
	res := list[0].Run(natstest.Context(t), call(`{"topic":"a","payload":""}`, func(context.Context) error { begun = true; return nil }))
	if res.Success || begun || res.Error.Code != tool.CodeFailed {
		t.Errorf("%+v, begun %t", res.Error, begun)
	}
	if Tools(mqttclient.Config{"house": {URL: "mqtt://x"}}) != nil {
		t.Error("it is offered although nothing may be published")
	}
}
