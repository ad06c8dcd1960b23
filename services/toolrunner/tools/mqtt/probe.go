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
	trying, cancel := context.WithTimeout(ctx, probeWait)
	defer cancel()
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		res, found := p.look(ctx, r)
		if found {
			r.forget(context.WithoutCancel(ctx))
			return res
		}
		select {
		case <-time.After(pause): // the broker may just be starting
		case <-trying.Done():
			return res
		}
	}
}

// A probe connects to the broker again for this long. What it then waits for the copy is not part of it.
const (
	probeWait    = 30 * time.Second
	connectWait  = 5 * time.Second        // for one connection: a broker that is ending may accept one and say nothing
	firstPause   = 100 * time.Millisecond // each pause is twice as long as the one before
	longestPause = 2 * time.Second
)

// look asks the broker once. found is false if it could not be connected to.
func (p publisher) look(ctx context.Context, r request) (res tool.Result, found bool) {
	copies := make(chan mqttclient.Message, 2*maxOthers)
	connecting, connected := context.WithTimeout(ctx, connectWait)
	defer connected()
	conn, err := r.broker.Dial(connecting, mqttclient.Options{ClientID: r.clientID, Receive: func(m mqttclient.Message) {
		select {
		case copies <- m:
		default:
		}
	}})
	if err != nil {
		return unknown(err.Error()), false
	}
	defer conn.Close(0)
	if !conn.Kept() {
		if r.message.Retain && r.retained(ctx) {
			return r.done(), true
		}
		return unknown("the broker keeps no session of the call"), true
	}
	wait, cancel := context.WithTimeout(ctx, p.settle)
	defer cancel()
	for others := 0; ; others++ {
		select {
		case m := <-copies:
			if !m.Retain && bytes.Equal(m.Payload, r.message.Payload) && m.Topic == r.message.Topic {
				return r.done(), true
			}
		case <-conn.Done():
			return unknown("the connection was lost"), true // it may have brought the copy
		case <-wait.Done():
			switch {
			case ctx.Err() != nil:
				return unknown(ctx.Err().Error()), true
			case others > maxOthers:
				return unknown("too many other messages were published on the topic"), true
			}
			return tool.Failure(tool.CodeNotRun, "the broker did not get the message"), true
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
