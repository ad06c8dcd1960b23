package transporttest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	ws "github.com/coder/websocket"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/provider"
	"skandha.dev/services/skandha/system"
	"skandha.dev/services/test/natstest"
	"skandha.dev/services/test/scripted"
	"skandha.dev/services/test/transporttest"
	"skandha.dev/services/uibridge/backend"
	"skandha.dev/services/uibridge/contract"
	"skandha.dev/services/uibridge/hub"
	"skandha.dev/services/uibridge/rpc"
	"skandha.dev/services/uibridge/sse"
)

const (
	many   = 200
	buffer = 8 << 10 // of sockets, so that who does not read is felt
	queue  = 32      // notifications that may wait for a UI
)

// bridge is a backend with the transports that UIs connect to.
type bridge struct {
	*backend.Backend
	url string
}

// crowd is a system with two bridges, and the UIs that connect.
type crowd struct {
	*testing.T
	ctx     context.Context //nolint:containedctx // of the test
	bridges []bridge
}

func newCrowd(t *testing.T) *crowd {
	t.Helper()
	transporttest.Leaks(t)
	dir := t.TempDir()
	sys, err := system.Start(natstest.Context(t), system.Config{
		Data: filepath.Join(dir, "data"), Sync: "relaxed", Log: natstest.Logger(t), Slots: 512,
		Models: []provider.Adapter{scripted.New()},
	})
	transporttest.Fatal(t, err)
	t.Cleanup(sys.Stop)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	c := &crowd{T: t, ctx: ctx}
	t.Cleanup(c.nothingIsLeft(sockets()))
	for range 2 {
		b, err := sys.Connect(ctx, "uibridge")
		transporttest.Fatal(t, err)
		t.Cleanup(b.Close)
		k, err := backend.New(backend.Config{
			Hub: hub.Config{Queue: queue, Ring: 16, Stall: 3 * time.Second, Idle: time.Millisecond},
		}, backend.Deps{Bus: b, Log: natstest.Logger(t)})
		transporttest.Fatal(t, err)
		t.Cleanup(k.Close)
		r, s := rpc.New(rpc.Config{WriteWait: time.Minute}, k,
			natstest.Logger(t)), sse.New(sse.Config{WriteWait: time.Minute}, k, natstest.Logger(t))
		c.bridges = append(c.bridges, bridge{k, transporttest.Serve(t, mux(r, s), buffer).URL})
	}
	return c
}

// nothingIsLeft verifies, after the UIs, the transports and the bridges have ended, that
// there are no more sockets than before.
func (c *crowd) nothingIsLeft(before int) func() {
	return func() {
		natstest.Eventually(c, "all sockets are closed", func() bool { return sockets() <= before })
		for _, b := range c.bridges {
			if s := b.Stats(); s.Feeds != 0 || s.Sessions != 0 {
				c.Errorf("a bridge keeps %+v", s)
			}
		}
	}
}

// sockets counts the open sockets of this process; 0 where the system does not report them.
func sockets() (n int) {
	all, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		return 0
	}
	for _, fd := range all {
		if to, err := os.Readlink(fd); err == nil && strings.HasPrefix(to, "socket:") {
			n++
		}
	}
	return n
}

// come connects to the i-th bridge until the test ends.
func (c *crowd) come(i int, by transport, ref subject.Ref, after string, size int) ui {
	c.Helper()
	u, err := by(c.ctx, c.bridges[i%2].url, ref, after, size)
	transporttest.Fatal(c, err)
	c.Cleanup(func() { _ = u.Close() }) // it may be closed already
	return u
}

// watcher reads a session for the test itself.
type watcher struct {
	c    *crowd
	ref  subject.Ref
	feed contract.Feed
	ids  []string
}

func (c *crowd) watch(ref subject.Ref) *watcher {
	c.Helper()
	f, err := c.bridges[0].Attach(c.ctx, transporttest.Principal(), contract.Attachment{Ref: ref, After: "0"})
	transporttest.Fatal(c, err)
	c.Cleanup(f.Close)
	return &watcher{c, ref, f, nil}
}

// say sends an input and waits for the end of its turn.
func (w *watcher) say(text string) {
	w.c.Helper()
	_, err := w.c.bridges[1].Submit(w.c.ctx, transporttest.Principal(), contract.Submission{Ref: w.ref, Text: text})
	transporttest.Fatal(w.c, err)
	end := contract.OnReadyForInput
	if text == reset {
		end = contract.OnSessionReset
	}
	for method := ""; method != end; {
		n, err := w.feed.Next(w.c.ctx)
		transporttest.Fatal(w.c, err)
		if n.ID != "" { // the first onReadyForInput has none: it is about the beginning
			method, w.ids = n.Method, append(w.ids, n.ID)
		}
	}
}

// reset ends what a crowd follows: the readers read until it arrives.
const reset = "/reset"

// follow reads until the reset; a fickle UI disconnects after each few notifications. It
// counts in seen the notifications with a place.
func (c *crowd) follow(
	i int, by transport, ref subject.Ref, first ui, fickle bool, seen *atomic.Int64,
) (ids []string, err error) {
	u, after, got := first, "0", 0
	for {
		n, err := u.next()
		if err != nil && (!fickle || c.ctx.Err() != nil) {
			return ids, fmt.Errorf("UI %d, after %s: %w", i, after, err)
		}
		if n.id != "" {
			ids, after = append(ids, n.id), n.id
			seen.Add(1)
		}
		if n.method == contract.OnSessionReset {
			return ids, u.Close()
		}
		if got++; err != nil || fickle && got%5 == 2 { // in the middle of commits and while deltas come
			_ = u.Close()
			i++
			if u, err = by(c.ctx, c.bridges[i%2].url, ref, after, 0); err != nil {
				return ids, err
			}
		}
	}
}

// back reads everything that a UI that did not read was sent, which must end with the
// reason why it was dropped, then reconnects to another bridge, and returns all that it was
// sent.
func (c *crowd) back(by transport, ref subject.Ref, u ui) (ids []string, err error) {
	var last note
	for err == nil {
		var n note
		if n, err = u.next(); err != nil {
			break
		}
		if last = n; n.id != "" {
			ids = append(ids, n.id)
		}
	}
	d, bad := last.why()
	switch {
	case bad != nil || d.Code != contract.CodeSlow || d.Message == "":
		return ids, fmt.Errorf("the last notification is %+v: %w, %w", d, bad, err)
	case len(ids) > 0 && d.After != ids[len(ids)-1]:
		return ids, fmt.Errorf("it is to go on after %s; its last id is %s", d.After, ids[len(ids)-1])
	}
	var closed ws.CloseError
	if errors.As(err, &closed) &&
		(closed.Code != rpc.StatusSlow || !strings.HasPrefix(closed.Reason, "after="+d.After+":")) {
		return ids, fmt.Errorf("it was closed with %w, want %d and where to go on", closed, rpc.StatusSlow)
	}
	again, err := by(c.ctx, c.bridges[1].url, ref, d.After, 0)
	if err != nil {
		return ids, err
	}
	rest, err := c.follow(1, by, ref, again, false, &atomic.Int64{})
	return append(ids, rest...), err
}

// Of 200 UIs on one session, over both transports of two bridges, two do not read and two
// lose their connection all the time, and reconnect to the other bridge. All are sent
// everything once; those that do not read are dropped with the reason.
func TestTwoHundredUIsOfOneSession(t *testing.T) {
	c := newCrowd(t)
	ref := transporttest.Main("all")
	w := c.watch(ref)
	stuck := map[string]ui{}
	for name, by := range transports {
		stuck[name] = c.come(0, by, ref, "0", buffer)
	}
	seen, got, failed := make([]atomic.Int64, many-len(transports)), make([][]string, many-len(transports)), make([]error,
		many-len(transports))
	var reading sync.WaitGroup
	for i := range seen {
		by := overSSE
		if i/2%2 == 0 {
			by = overWebSocket
		}
		first := c.come(i, by, ref, "0", 0)
		reading.Go(func() {
			got[i], failed[i] = c.follow(i, by, ref, first, i == 1 || i == 2, &seen[i])
			seen[i].Store(math.MaxInt64) // nobody waits for it
		})
	}
	w.say("stream 30 words every 1 ms")
	for c.bridges[0].Stats().Slow < int64(len(stuck)) {
		w.say(strings.Repeat("x", 4<<10))
		for i := range seen { // those who read get the time for it
			natstest.Eventually(t, "the others keep up", func() bool { return seen[i].Load() >= int64(len(w.ids)) })
		}
	}
	w.say(reset)
	reading.Wait()
	for i := range got {
		if failed[i] != nil || !slices.Equal(got[i], w.ids) {
			t.Fatalf("UI %d: %v, was sent\n%v, want\n%v", i, failed[i], got[i], w.ids)
		}
	}
	var coming sync.WaitGroup
	for name, u := range stuck {
		coming.Go(func() {
			if ids, err := c.back(transports[name], ref, u); err != nil || !slices.Equal(ids, w.ids) {
				t.Errorf("%s, dropped and back: %v, was sent\n%v, want\n%v", name, err, ids, w.ids)
			}
		})
	}
	coming.Wait()
	if a, b := c.bridges[0].Stats(), c.bridges[1].Stats(); a.Slow != int64(len(stuck)) || b.Slow != 0 {
		t.Errorf("%+v and %+v, want just those that did not read dropped", a, b)
	}
}

// 200 sessions on one bridge, over both transports: each is sent its own, while one does
// not read.
func TestTwoHundredSessionsOfOneBridge(t *testing.T) {
	c := newCrowd(t)
	slow := transporttest.Main("slow")
	w := c.watch(slow)
	stuck := c.come(0, overWebSocket, slow, "0", buffer)
	var all sync.WaitGroup
	for i := range many {
		ref := transporttest.Main(fmt.Sprintf("s%d", i))
		by := overSSE
		if i%2 == 0 {
			by = overWebSocket
		}
		u := c.come(0, by, ref, "", 0)
		all.Go(func() {
			if err := converse(u, ref, fmt.Sprintf("I am %d", i)); err != nil {
				t.Errorf("session %d: %v", i, err)
			}
		})
	}
	for c.bridges[0].Stats().Slow == 0 {
		w.say(strings.Repeat("x", 4<<10))
	}
	all.Wait()
	w.say(reset)
	if ids, err := c.back(overSSE, slow, stuck); err != nil || !slices.Equal(ids, w.ids) {
		t.Errorf("dropped and back, by the other transport: %v, was sent\n%v, want\n%v", err, ids, w.ids)
	}
	if s := c.bridges[0].Stats(); s.Slow != 1 {
		t.Errorf("%+v, want one that was dropped", s)
	}
}

// converse sends an input and waits for its answer and the end of the turn.
func converse(u ui, ref subject.Ref, text string) error {
	var answer contract.Message
	for {
		n, err := u.next()
		switch {
		case err != nil:
			return err
		case n.method == contract.OnAttached:
			err = u.say(text)
		case n.method == contract.OnNewMessage:
			err = json.Unmarshal(n.params, &answer)
		case n.method == contract.OnReadyForInput && answer.Content != "": // the first is about the beginning
			if answer.Session != ref.Session || answer.Content != "echo: "+text {
				return fmt.Errorf("the answer is %+v", answer)
			}
			return u.Close()
		}
		if err != nil {
			return err
		}
	}
}
