package mqtt

import (
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/buildinfo"
	"skandha.dev/services/internal/follow"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/mqttclient"
	"skandha.dev/services/internal/text"
)

// publishWait bounds one message to the broker.
const publishWait = 10 * time.Second

// device announces the agent in Home Assistant, and shows its state and its last answer, over
// one connection.
type device struct {
	HomeAssistant
	listener subject.Writer
	own      topics
	bus      *journal.Journal
	conn     *mqttclient.Conn
	log      *slog.Logger
}

// entity is the discovery payload of one entity, as Home Assistant defines it:
// https://www.home-assistant.io/integrations/mqtt/#mqtt-discovery
type entity struct {
	Name         string   `json:"name"`
	UniqueID     string   `json:"unique_id"`
	StateTopic   string   `json:"state_topic,omitempty"`
	Attributes   string   `json:"json_attributes_topic,omitempty"`
	Template     string   `json:"value_template,omitempty"`
	CommandTopic string   `json:"command_topic,omitempty"`
	Max          int      `json:"max,omitempty"`
	QoS          int      `json:"qos,omitempty"`
	Availability string   `json:"availability_topic"`
	Device       agent    `json:"device"`
	Origin       software `json:"origin"`
}

type agent struct {
	Identifiers  []string `json:"identifiers"`
	Name         string   `json:"name"`
	Manufacturer string   `json:"manufacturer"`
	Model        string   `json:"model"`
	Version      string   `json:"sw_version"`
}

type software struct {
	Name    string `json:"name"`
	Version string `json:"sw_version"`
}

// entities returns the discovery payloads, by their topics.
func (d device) entities() map[string]entity {
	node := "skandha_" + string(d.listener)
	base := entity{
		Availability: d.own.status,
		Device: agent{
			Identifiers: []string{node}, Name: "Skandha " + d.Agent, Manufacturer: "Skandha", Model: "agent",
			Version: buildinfo.String(),
		},
		Origin: software{"skandha", buildinfo.String()},
	}
	say, state, answer := base, base, base
	say.Name, say.UniqueID, say.CommandTopic, say.Max, say.QoS = "Say", node+"_say", d.own.say, maxSaid, 1
	state.Name, state.UniqueID, state.StateTopic = "State", node+"_state", d.own.state
	// A state has at most 255 characters; the attribute has all of the answer.
	answer.Name, answer.UniqueID, answer.StateTopic, answer.Attributes = "Last answer", node+"_answer", d.own.answer, d.own.answer
	answer.Template = "{{ value_json.text[:250] }}"
	return map[string]entity{
		d.Prefix + "/text/" + node + "/say/config":      say,
		d.Prefix + "/sensor/" + node + "/state/config":  state,
		d.Prefix + "/sensor/" + node + "/answer/config": answer,
	}
}

// start announces the device, again each time that Home Assistant has started, and shows the
// session until leave is called.
func (d device) start(ctx context.Context, born <-chan struct{}) (leave func()) {
	ctx, cancel := context.WithCancel(ctx)
	var ended sync.WaitGroup
	ended.Go(func() {
		for {
			d.announce(ctx)
			select {
			case <-born:
			case <-d.conn.Done():
				return
			case <-ctx.Done():
				return
			}
		}
	})
	ended.Go(func() { d.show(ctx) })
	return func() {
		cancel()
		ended.Wait()
		d.publish(context.WithoutCancel(ctx), d.own.status, []byte("offline"))
	}
}

func (d device) announce(ctx context.Context) {
	all := d.entities()
	for _, topic := range slices.Sorted(maps.Keys(all)) {
		body, err := json.Marshal(all[topic])
		if err != nil {
			panic("mqtt: a discovery payload is not JSON: " + err.Error()) // it is text and numbers
		}
		d.publish(ctx, topic, body)
	}
	d.publish(ctx, d.own.status, []byte("online"))
}

// publish publishes a retained message. A message that fails is sent again after the next
// connect.
func (d device) publish(ctx context.Context, topic string, body []byte) {
	ctx, cancel := context.WithTimeout(ctx, publishWait)
	defer cancel()
	if err := d.conn.Publish(ctx, mqttclient.Message{Topic: topic, Payload: body, QoS: 1, Retain: true}); err != nil {
		d.log.Debug("publishing for Home Assistant failed", "topic", topic, "error", err)
	}
}

// show publishes the session's state and answers as they come.
func (d device) show(ctx context.Context) {
	ref := subject.Ref{Agent: subject.Agent(d.Agent), Session: subject.Session(d.Session)}
	d.publish(ctx, d.own.state, []byte(event.StateWaiting))
	for ctx.Err() == nil {
		from, err := follow.End(ctx, d.bus, ref)
		if err == nil {
			var items <-chan follow.Item
			if items, err = follow.Follow(ctx, d.bus, ref, from, d.log); err == nil {
				for i := range items {
					d.item(ctx, i)
				}
			}
		}
		if err != nil {
			d.log.Debug("following the session for Home Assistant failed; retrying", "error", err)
			pause(ctx, firstPause)
		}
	}
}

func (d device) item(ctx context.Context, i follow.Item) {
	switch i.Event.Type {
	case event.TypeUIState:
		var s event.UIState
		if i.Event.DataAs(&s) == nil {
			d.publish(ctx, d.own.state, []byte(s.State))
		}
	case event.TypeUIMessage:
		var m event.UIMessage
		if i.Event.DataAs(&m) != nil {
			return
		}
		body, err := json.Marshal(map[string]string{"text": text.Cut(m.Content, maxAnswer)})
		if err == nil {
			d.publish(ctx, d.own.answer, body)
		}
	}
}

// maxAnswer bounds an answer that is shown, in bytes.
const maxAnswer = 16 << 10
