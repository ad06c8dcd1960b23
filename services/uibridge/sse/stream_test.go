package sse_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"skandha.dev/services/test/natstest"
	"skandha.dev/services/test/pipenet"
	"skandha.dev/services/test/transporttest"
	"skandha.dev/services/uibridge/contract"
	"skandha.dev/services/uibridge/sse"
)

var session = transporttest.Main("s")

func TestEventsAreNotifications(t *testing.T) {
	r := newRig(t, sse.Config{Retry: 1500 * time.Millisecond})
	s := r.follow(t, "", "")
	if at := s.until(t, contract.OnAttached); at.id != "" || at.params(t).After != "0" || s.retry != "1500" {
		t.Errorf("attached with %+v, retry %s", at, s.retry)
	}
	r.Lossy(session)
	r.Say(session, "two\nlines: and \"quotes\" — ü")
	if e := s.until(t, contract.OnDelta); e.id != "" || s.last != "" {
		t.Errorf("a delta is sent as %+v, the last id is %q", e, s.last)
	}
	if e := s.until(t, contract.OnNewMessage); e.id != "1.0" || e.params(t).Content != "two\nlines: and \"quotes\" — ü" {
		t.Errorf("a message is sent as %+v", e)
	}
	r.Lossy(session)
	if e := s.until(t, contract.OnDelta); e.id != "" || s.last != "1.0" {
		t.Errorf("after a delta %+v the last id is %q", e, s.last)
	}
}

// A client that reconnects with the id of any event gets exactly the rest.
func TestResumingAfterEachEvent(t *testing.T) {
	r := newRig(t, sse.Config{})
	const n = 12
	for i := range n {
		r.Say(session, fmt.Sprint(i))
	}
	for seen := range n {
		last := "0"
		if seen > 0 {
			last = fmt.Sprintf("%d.0", seen)
		}
		for how, s := range map[string]*reader{
			"by Last-Event-ID": r.follow(t, "?after=7.0", last), // which goes before
			"by after":         r.follow(t, "?after="+last, ""),
		} {
			for i := seen; i < n; i++ {
				if e := s.until(t, contract.OnNewMessage); e.params(t).Content != fmt.Sprint(i) ||
					e.id != fmt.Sprintf("%d.0", i+1) {
					t.Fatalf("%s %s: the next is %+v, want message %d", how, last, e, i)
				}
			}
		}
	}
	r.Say(session, "live") // nothing came between: this is the next one for all
	s := r.follow(t, "", fmt.Sprintf("%d.0", n))
	if e := s.until(t, contract.OnNewMessage); e.params(t).Content != "live" {
		t.Errorf("heard %+v", e)
	}
}

// A reader that loses its connection again and again, as browsers do, sees everything once.
func TestAReaderThatIsCutOffAgainAndAgain(t *testing.T) {
	r := newRig(t, sse.Config{})
	var got []string
	last := ""
	for i := range 10 {
		s := r.follow(t, "?after=0", last)
		s.until(t, contract.OnAttached)
		r.Say(session, fmt.Sprint("a", i))
		r.Say(session, fmt.Sprint("b", i))
		got = append(got, s.until(t, contract.OnNewMessage).params(t).Content)
		if i%2 == 0 {
			got = append(got, s.until(t, contract.OnNewMessage).params(t).Content)
		}
		last = s.last
		r.CloseClientConnections()
	}
	s := r.follow(t, "?after=0", last)
	for len(got) < 20 {
		got = append(got, s.until(t, contract.OnNewMessage).params(t).Content)
	}
	want := make([]string, 0, 20)
	for i := range 10 {
		want = append(want, fmt.Sprint("a", i), fmt.Sprint("b", i))
	}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("heard %v", got)
	}
}

func TestSilenceIsCommentedOn(t *testing.T) {
	r := newRig(t, sse.Config{KeepAlive: 10 * time.Millisecond})
	s := r.follow(t, "", "")
	s.until(t, contract.OnAttached)
	for s.comments < 3 { // an event ends each wait
		if _, err := s.Peek(1); err != nil {
			t.Fatal(err)
		}
		line, err := s.ReadString('\n')
		transporttest.Fatal(t, err)
		if strings.HasPrefix(line, ":") {
			s.comments++
		}
	}
	r.Say(session, "x")
	s.until(t, contract.OnNewMessage)
}

func TestStreamsEndWithWhy(t *testing.T) {
	for name, k := range map[string]struct {
		end  func(*rig)
		want contract.Code
	}{
		"the connection does not keep up": {
			func(r *rig) { r.Break(session, &contract.Error{Code: contract.CodeSlow, Message: "x"}) }, contract.CodeSlow,
		},
		"the log cannot be read": {
			func(r *rig) { r.Break(session, &contract.Error{Code: contract.CodeUnavailable, Message: "x"}) },
			contract.CodeUnavailable,
		},
		"something else": {func(r *rig) { r.Break(session, errors.New("secret")) }, contract.CodeInternal},
		"the login ends": {
			func(r *rig) { r.End(&contract.Error{Code: contract.CodeUnauthenticated, Message: "x"}) },
			contract.CodeUnauthenticated,
		},
		"the bridge stops": {func(r *rig) { r.End(contract.ErrGoingAway) }, contract.CodeUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, sse.Config{})
			s := r.follow(t, "", "")
			s.until(t, contract.OnAttached)
			id := r.Say(session, "x")
			s.until(t, contract.OnNewMessage)
			k.end(r)
			all := s.rest(t)
			if len(all) != 1 || all[0].name != contract.OnDropped || all[0].params(t).Code != k.want ||
				all[0].params(t).After != id || strings.Contains(all[0].data, "secret") {
				t.Errorf("it ended with %+v", all)
			}
			if s.last != id {
				t.Errorf("the last id is %s", s.last)
			}
			natstest.Eventually(t, "nothing is left", func() bool { return r.Counters()["sse_open"] == 0 && r.Feeds() == 0 })
		})
	}
}

// A browser that reconnects by itself after the log was replaced begins anew: with the last
// id it saw it would be refused.
func TestALostPlaceIsNotGoneOnAfter(t *testing.T) {
	r := newRig(t, sse.Config{})
	s := r.follow(t, "", "")
	s.until(t, contract.OnAttached)
	r.Say(session, "x")
	s.until(t, contract.OnNewMessage)
	r.Break(session, contract.LostPlace("x"))
	all := s.rest(t)
	if len(all) != 1 || all[0].name != contract.OnDropped || all[0].params(t).Code != contract.CodeInvalid ||
		all[0].params(t).After != "0" {
		t.Errorf("it ended with %+v", all)
	}
	if s.last != "0" {
		t.Errorf("the last id is %s", s.last)
	}
}

// A server's own timeouts for requests do not apply to streams.
func TestAStreamOutlivesTheServersTimeouts(t *testing.T) {
	for name, h2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { outlivesTheServersTimeouts(t, h2) })
		})
	}
}

func outlivesTheServersTimeouts(t *testing.T, h2 bool) {
	b := transporttest.New()
	d := sse.New(sse.Config{KeepAlive: 50 * time.Millisecond}, b, natstest.Logger(t))
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d.ServeHTTP(w, r.WithContext(contract.WithPrincipal(r.Context(), transporttest.Principal())))
	}))
	transporttest.Fatal(t, s.Listener.Close())
	network := pipenet.New()
	s.Listener, s.EnableHTTP2 = network, h2
	s.Config.ReadTimeout, s.Config.WriteTimeout = 100*time.Millisecond, 100*time.Millisecond
	s.StartTLS()
	t.Cleanup(s.Close) // after the reader has left
	c := s.Client()
	c.Transport.(*http.Transport).DialContext = network.DialContext
	f := follow(t, c, s.URL+"/v1/agents/main/sessions/s/events", "")
	f.until(t, contract.OnAttached)
	for range 8 { // comments, each 50 ms after the other
		if _, err := f.ReadString(':'); err != nil {
			t.Fatal(err)
		}
	}
	b.Say(session, "x")
	f.until(t, contract.OnNewMessage)
}

func TestWhoTakesNothingIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := transporttest.New()
		d := sse.New(sse.Config{WriteWait: 50 * time.Millisecond}, b, natstest.Logger(t))
		follow(t, piped(t, d, transporttest.Principal()), inPipes, "") // it reads no further
		natstest.Eventually(t, "it is dropped", func() bool {
			b.Say(session, strings.Repeat("x", 64<<10))
			return d.Counters()["sse_dropped_total"] == 1
		})
		natstest.Eventually(t, "its feed is closed", func() bool { return b.Feeds() == 0 })
	})
}
