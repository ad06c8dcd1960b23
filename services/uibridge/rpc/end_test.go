package rpc_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	ws "github.com/coder/websocket"

	"skandha.dev/services/test/natstest"
	"skandha.dev/services/test/transporttest"
	"skandha.dev/services/uibridge/contract"
	"skandha.dev/services/uibridge/rpc"
)

func TestMessagesThatEndAConnection(t *testing.T) {
	r := newRig(t, rpc.Config{MaxMessage: 1000})
	for _, k := range []struct {
		kind ws.MessageType
		body string
		want ws.StatusCode
	}{
		{ws.MessageBinary, `{"jsonrpc":"2.0","id":1,"method":"getStatus"}`, ws.StatusUnsupportedData},
		{ws.MessageText, "\"\xff\"", ws.StatusInvalidFramePayloadData},
		{ws.MessageText, `"` + strings.Repeat("x", 1000) + `"`, ws.StatusMessageTooBig},
	} {
		c := r.dial(t, "")
		c.hear(contract.OnAttached)
		if err := c.Write(c.ctx, k.kind, []byte(k.body)); err != nil {
			t.Fatal(err)
		}
		if how, _ := c.ended(); how.Code != k.want {
			t.Errorf("%.20q ended the connection with %+v, want %d", k.body, how, k.want)
		}
	}
}

func TestALostPlaceIsNotGoneOnAfter(t *testing.T) {
	r := newRig(t, rpc.Config{})
	c := r.dial(t, "?session=s")
	c.hear(contract.OnAttached)
	r.Say(transporttest.Main("s"), "x")
	c.hear(contract.OnNewMessage)
	r.Break(transporttest.Main("s"), contract.LostPlace("x"))
	how, last := c.ended()
	if how.Code != 4400 || last.Method != contract.OnDropped || last.params(t).Code != contract.CodeInvalid ||
		last.params(t).After != "0" {
		t.Errorf("ended with %+v after %+v", how, last)
	}
}

func TestALoginThatEndsEndsTheConnection(t *testing.T) {
	r := newRig(t, rpc.Config{})
	c := r.dial(t, "?session=s")
	c.hear(contract.OnAttached)
	r.End(&contract.Error{Code: contract.CodeUnauthenticated, Message: "you have logged out"})
	if how, last := c.ended(); how.Code != 4401 || how.Reason != "you have logged out" ||
		last.Method != contract.OnDropped {
		t.Errorf("ended with %+v after %+v", how, last)
	}
}

func TestAFeedThatEndsSaysWhy(t *testing.T) {
	r := newRig(t, rpc.Config{})
	ref := transporttest.Main("s")
	for _, k := range []struct {
		err  error
		want ws.StatusCode
	}{
		{&contract.Error{Code: contract.CodeUnavailable, Message: "the log cannot be read"}, 4503},
		{errors.New("secret"), 4500},
		{&contract.Error{Code: contract.CodeSlow, Message: strings.Repeat("slöw ", 40)}, 4408},
	} {
		c := r.dial(t, "?session=s")
		c.hear(contract.OnAttached)
		id := r.Say(ref, "x")
		c.hear(contract.OnNewMessage)
		r.Break(ref, k.err)
		how, last := c.ended()
		if how.Code != k.want || last.Method != contract.OnDropped || last.params(t).After != id ||
			strings.Contains(how.Reason, "secret") {
			t.Errorf("%v: ended with %+v after %s", k.err, how, last.Params)
		}
		if how.Code == rpc.StatusSlow && !strings.HasPrefix(how.Reason, "after="+id+":") {
			t.Errorf("the reason is %q", how.Reason)
		}
	}
	c := r.dial(t, "?session=s&after=nonsense")
	if how, _ := c.ended(); how.Code != 4400 {
		t.Errorf("a wrong after ended with %+v", how)
	}
}

// When the bridge stops, accepted requests are answered first.
func TestShutdown(t *testing.T) {
	for name, why := range map[string]error{
		"as the access layer says": contract.ErrGoingAway,
		"for another reason":       errors.New("?"),
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, rpc.Config{})
			c := r.dial(t, "?session=s")
			c.hear(contract.OnAttached)
			r.Hold(true)
			c.send(`{"jsonrpc":"2.0","id":1,"method":"submitUserInput","params":["x"]}`)
			c.must("2", "getStatus", "", nil) // so the input was taken before
			r.End(why)
			natstest.Eventually(t, "nothing more is taken", func() bool {
				m := c.ask(`"more"`, "getStatus", "")
				return m.Error != nil && m.Error.Code == -32053
			})
			r.Hold(false)
			if m := c.answer("1"); m.Error != nil {
				t.Errorf("what was taken is answered %+v", m.Error)
			}
			if how, last := c.ended(); how.Code != ws.StatusGoingAway || last.Method != contract.OnDropped {
				t.Errorf("ended with %+v after %+v", how, last)
			}
			natstest.Eventually(t, "nobody is left", func() bool { return r.Counters()["ws_open"] == 0 })
			if len(r.Log()) != 1 {
				t.Errorf("stored %v", r.Log())
			}
		})
	}
}

// A request of a disconnected peer is stored all the same.
func TestAnInputOutlivesItsConnection(t *testing.T) {
	r := newRig(t, rpc.Config{})
	c := r.dial(t, "?session=s")
	r.Hold(true)
	c.send(`{"jsonrpc":"2.0","method":"submitUserInput","params":["x"]}`)
	c.must("1", "getStatus", "", nil)
	_ = c.CloseNow()
	natstest.Eventually(t, "the feed has ended", func() bool { return r.Feeds() == 0 })
	r.Hold(false)
	natstest.Eventually(t, "the input is stored", func() bool { return len(r.Log()) == 1 })
}

func TestWhoDoesNotAnswerPingsIsDropped(t *testing.T) {
	r := newRig(t, rpc.Config{PingEvery: 20 * time.Millisecond, WriteWait: 100 * time.Millisecond})
	r.dial(t, "?session=s") // it does not read, so it does not see them
	natstest.Eventually(t, "it is dropped", func() bool { return r.Counters()["ws_dropped_total"] == 1 && r.Feeds() == 0 })
}

func TestWhoAnswersPingsStays(t *testing.T) {
	r := newRig(t, rpc.Config{PingEvery: 5 * time.Millisecond})
	pings := make(chan struct{})
	ctx, cancel := context.WithCancel(natstest.Context(t))
	c, _, err := ws.Dial(ctx, r.WS()+rpc.Path+"?session=s", &ws.DialOptions{OnPingReceived: func(ctx context.Context, _ []byte) bool { //nolint:bodyclose // of an upgrade it is nil
		select {
		case pings <- struct{}{}:
		case <-ctx.Done():
		}
		return true
	}})
	transporttest.Fatal(t, err)
	defer func() { _ = c.CloseNow() }()
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		for {
			if _, _, err := c.Read(ctx); err != nil {
				ended <- err
				return
			}
		}
	}()
	for range 5 {
		select {
		case <-pings:
		case err := <-ended:
			t.Fatalf("it has ended: %v", err)
		}
	}
	if r.Feeds() != 1 {
		t.Error("the feed has ended")
	}
}

// A client that sends requests and never reads the answers is cut off.
func TestWhoDoesNotReadAnswersIsDropped(t *testing.T) {
	transporttest.Leaks(t)
	b := transporttest.New()
	d := rpc.New(rpc.Config{AtOnce: 4}, b, natstest.Logger(t))
	s := transporttest.Serve(t, d, 4096)
	c, err := connect(t.Context(), s.WS()+rpc.Path, 4096)
	transporttest.Fatal(t, err)
	defer func() { _ = c.CloseNow() }()
	ask := []byte(`{"jsonrpc":"2.0","id":"` + strings.Repeat("x", 2000) + `","method":"getStatus"}`)
	natstest.Eventually(t, "it is dropped", func() bool {
		_ = c.Write(t.Context(), ws.MessageText, ask)
		return d.Counters()["ws_dropped_total"] == 1
	})
}

// A frame that is not read in time ends the connection.
func TestWhoTakesNothingIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := transporttest.New()
		d := rpc.New(rpc.Config{WriteWait: 50 * time.Millisecond}, b, natstest.Logger(t))
		c := piped(t, d, transporttest.Principal(), "?session=s")
		c.hear(contract.OnAttached) // and nothing more
		natstest.Eventually(t, "it is dropped", func() bool {
			b.Say(transporttest.Main("s"), strings.Repeat("x", 64<<10))
			return d.Counters()["ws_dropped_total"] == 1
		})
		natstest.Eventually(t, "its feed is closed", func() bool { return b.Feeds() == 0 })
	})
}
