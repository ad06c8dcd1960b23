package mqtt

import (
	"bytes"
	"context"
	"encoding/json"
	"time"

	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/mqttclient"
	"skandha.dev/services/toolrunner/tools"
)

// maxOthers is how many other messages a session may hold before the broker may have dropped
// one of them.
const maxOthers = 50

// probe asks the broker what became of an earlier attempt.
func (p publisher) probe(ctx context.Context, c tools.Call, _ tools.Begun) tool.Result {
	var a arguments
	if err := json.Unmarshal(c.Args, &a); err != nil {
		return unknown("reading the arguments: " + err.Error())
	}
	r, err := p.check(c, a)
	if err != nil {
		return unknown(err.Error())
	}
	copies := make(chan mqttclient.Message, 2*maxOthers)
	conn, err := r.broker.Dial(ctx, mqttclient.Options{ClientID: r.clientID, Receive: func(m mqttclient.Message) {
		select {
		case copies <- m:
		default:
		}
	}})
	if err != nil {
		return unknown(err.Error())
	}
	defer r.forget(ctx)
	defer conn.Close(0)
	if !conn.Kept() {
		if r.message.Retain && r.retained(ctx) {
			return r.done()
		}
		return unknown("the broker keeps no session of the call")
	}
	wait, cancel := context.WithTimeout(ctx, p.settle)
	defer cancel()
	for others := 0; ; others++ {
		select {
		case m := <-copies:
			if !m.Retain && bytes.Equal(m.Payload, r.message.Payload) && m.Topic == r.message.Topic {
				return r.done()
			}
		case <-conn.Done():
			return unknown("the connection was lost")
		case <-wait.Done():
			switch {
			case ctx.Err() != nil:
				return unknown(ctx.Err().Error())
			case others > maxOthers:
				return unknown("too many other messages were published on the topic")
			}
			return tool.Failure(tool.CodeNotRun, "the broker did not get the message")
		}
	}
}

// retainedWait is how long a broker may take to send what it retains.
const retainedWait = 3 * time.Second

// retained reports whether the topic's retained message is that of the call.
func (r request) retained(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, retainedWait)
	defer cancel()
	got := make(chan mqttclient.Message, 1)
	conn, err := r.broker.Dial(ctx, mqttclient.Options{ClientID: r.clientID + "r", Clean: true, Receive: func(m mqttclient.Message) {
		select {
		case got <- m:
		default:
		}
	}})
	if err != nil {
		return false
	}
	defer conn.Close(0)
	if err := conn.Subscribe(ctx, map[string]byte{r.message.Topic: 1}); err != nil {
		return false
	}
	select {
	case m := <-got:
		return m.Retain && bytes.Equal(m.Payload, r.message.Payload)
	case <-ctx.Done():
		return false
	}
}

func unknown(why string) tool.Result {
	return tool.Failure(tool.CodeOutcomeUnknown, "it is not known whether the message was published: "+why)
}
