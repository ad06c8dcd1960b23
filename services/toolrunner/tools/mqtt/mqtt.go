package mqtt

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/bounds"
	"skandha.dev/services/internal/mqttclient"
	"skandha.dev/services/toolrunner/tools"
)

// The times of a call.
const (
	timeout   = 75 * time.Second // of which a probe connects for 30 s, and waits for 35 s
	closeWait = 500 * time.Millisecond
)

type arguments struct {
	Broker  string `json:"broker"`
	Topic   string `json:"topic"`
	Payload string `json:"payload"`
	QoS     *byte  `json:"qos"`
	Retain  bool   `json:"retain"`
}

// publisher publishes to the brokers.
type publisher struct {
	brokers mqttclient.Config // those that something may be published on
	// how long a broker may take to deliver what it holds
	settle time.Duration
}

// settle is longer than any broker waits before it delivers again (NATS: 30 s).
const settle = 35 * time.Second

// Tools returns mqtt:publish, if something may be published on one of the brokers.
func Tools(brokers mqttclient.Config) []tools.Tool { return publishing(brokers, settle) }

func publishing(brokers mqttclient.Config, settle time.Duration) []tools.Tool {
	p := publisher{mqttclient.Config{}, settle}
	for name, b := range brokers {
		if len(b.Publish) > 0 {
			p.brokers[name] = bounds.Filled(b)
		}
	}
	if len(p.brokers) == 0 {
		return nil
	}
	t := tools.New(p.spec(), p.run)
	t.Probe = p.probe
	return []tools.Tool{t}
}

func (p publisher) names() []string { return slices.Sorted(maps.Keys(p.brokers)) }

func (p publisher) spec() tool.Spec {
	var allowed []string
	for _, name := range p.names() {
		allowed = append(allowed, name+": "+strings.Join(p.brokers[name].Publish, ", "))
	}
	names, err := json.Marshal(p.names())
	if err != nil {
		panic("mqtt: names are not JSON: " + err.Error()) // they are ids
	}
	broker, required := `"broker":{"enum":`+string(names)+`},`, `"topic","payload"`
	if len(p.brokers) > 1 {
		required = `"broker",` + required
	}
	return tool.Spec{
		Name: "mqtt:publish",
		Description: "Publishes a message to an MQTT broker, for example to switch a device. Allowed topics by broker " +
			"(+ is one level, # all further ones): " + strings.Join(allowed, "; ") + ".",
		Args: json.RawMessage(`{"type":"object","properties":{` + broker + `
			"topic":{"type":"string","minLength":1,"maxLength":1024,"description":"without wildcards"},
			"payload":{"type":"string","description":"sent as it is; may be empty"},
			"qos":{"enum":[0,1,2],"default":1,"description":"0: may be lost; 1: arrives; 2: arrives once"},
			"retain":{"type":"boolean","default":false,"description":"the broker keeps it as the topic's last known state"}},
			"required":[` + required + `],"additionalProperties":false}`),
		Risk: tool.RiskHigh, Permissions: []string{"network.request"}, Scope: []string{"broker", "topic", "payload", "retain"},
		ScenarioTags: []string{"task_execution", "communication"}, TimeoutMS: timeout.Milliseconds(),
	}
}

// request is a call that was checked.
type request struct {
	broker   mqttclient.Broker
	name     string
	message  mqttclient.Message
	clientID string
}

func (p publisher) check(c tools.Call, a arguments) (request, error) {
	if a.Broker == "" {
		a.Broker = p.names()[0] // the only one, or the schema would have refused it
	}
	b, ok := p.brokers[a.Broker]
	if !ok {
		return request{}, fmt.Errorf("no broker %q; use one of %s", a.Broker, strings.Join(p.names(), ", "))
	}
	if err := mqttclient.CheckTopic(a.Topic); err != nil {
		return request{}, fmt.Errorf("topic: %w", err)
	}
	if !slices.ContainsFunc(b.Publish, func(f string) bool { return mqttclient.Matches(f, a.Topic) }) {
		return request{}, fmt.Errorf("topic %q is not allowed; allowed are %s", a.Topic, strings.Join(b.Publish, ", "))
	}
	if int64(len(a.Payload)) > b.MaxPayload {
		return request{}, fmt.Errorf("payload has %d bytes, at most %d", len(a.Payload), b.MaxPayload)
	}
	qos := byte(1)
	if a.QoS != nil {
		qos = *a.QoS
	}
	sum := sha256.Sum256([]byte(c.Key))
	return request{
		broker: b, name: a.Broker, clientID: "skandha-" + hex.EncodeToString(sum[:7]), // at most 23, which all brokers accept
		message: mqttclient.Message{Topic: a.Topic, Payload: []byte(a.Payload), QoS: qos, Retain: a.Retain},
	}, nil
}

// answer is the result for the model.
type answer struct {
	Broker   string `json:"broker"`
	Topic    string `json:"topic"`
	Bytes    int    `json:"bytes"`
	QoS      byte   `json:"qos"`
	Retained bool   `json:"retained,omitempty"`
}

func (r request) done() tool.Result {
	return tool.OK(answer{r.name, r.message.Topic, len(r.message.Payload), r.message.QoS, r.message.Retain})
}

func (p publisher) run(ctx context.Context, c tools.Call, a arguments) tool.Result {
	r, err := p.check(c, a)
	if err != nil {
		return tools.Fail(err)
	}
	witness := r.message.QoS > 0
	conn, err := r.broker.Dial(ctx, mqttclient.Options{ClientID: r.clientID, Clean: !witness})
	if err != nil {
		return tools.Fail(err)
	}
	defer conn.Close(closeWait)
	if witness {
		// A user that may not subscribe can publish, too.
		if err := conn.Subscribe(ctx, map[string]byte{r.message.Topic: 1}); err != nil && !errors.Is(err, mqttclient.ErrRefused) {
			return tools.Fail(err)
		}
	}
	if err := c.Begin(ctx); err != nil {
		return tools.Fail(err)
	}
	if err := conn.Publish(ctx, r.message); err != nil {
		return unknown(err.Error())
	}
	if witness {
		conn.Close(closeWait)
		r.forget(ctx)
	}
	return r.done()
}

// forget makes the broker forget the session of a call.
func (r request) forget(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeWait)
	defer cancel()
	if conn, err := r.broker.Dial(ctx, mqttclient.Options{ClientID: r.clientID, Clean: true}); err == nil {
		conn.Close(closeWait)
	}
}
