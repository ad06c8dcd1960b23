package websocket_test

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	ws "github.com/coder/websocket"

	"skandha.dev/services/listener/contract"
	"skandha.dev/services/listener/websocket"
	"skandha.dev/services/test/natstest"
	"skandha.dev/services/test/pipenet"
)

// memory keeps inputs where a bus would: a bus cannot be in a bubble.
type memory struct {
	mu  sync.Mutex
	all []contract.Input
}

func (m *memory) EmitInput(_ context.Context, in contract.Input) (contract.Receipt, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.all = append(m.all, in)
	return contract.Receipt{ID: in.ID, Sequence: uint64(len(m.all))}, nil
}

// inBubble gives the test a listener whose connections, pings and patience go by the
// bubble's clock.
func inBubble(
	t *testing.T, test func(t *testing.T, dial func(*ws.DialOptions) *client, stats *websocket.Stats, taken *memory),
) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		stats, taken := &websocket.Stats{}, &memory{}
		l, err := websocket.New("chat", websocket.Config{Session: "s", Tokens: []string{token}},
			websocket.Deps{Logger: natstest.Logger(t), Stats: stats, PingEvery: 10 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		mux := http.NewServeMux()
		mux.Handle(l.Path(), l)
		hc := pipenet.Serve(t, mux)
		if err := l.OnStart(t.Context(), taken); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			now, cancel := context.WithCancel(context.Background())
			cancel()
			_ = l.OnStop(now)
		})
		test(t, func(o *ws.DialOptions) *client {
			t.Helper()
			o.HTTPClient = hc
			c, err := dial(t.Context(), "ws://chat.invalid"+l.Path(),
				func(d *ws.DialOptions) { o.HTTPHeader = d.HTTPHeader; *d = *o })
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = c.CloseNow() })
			return c
		}, stats, taken)
	})
}

// A client that does not read takes no answer, and answers no ping, either.
func TestWhoDoesNotReadIsDropped(t *testing.T) {
	for name, reads := range map[string]bool{"from the beginning": false, "after the answer": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, dial func(*ws.DialOptions) *client, stats *websocket.Stats, taken *memory) {
				c := dial(&ws.DialOptions{})
				if err := c.say(t.Context(), `{"text": "what I said is taken all the same"}`); err != nil {
					t.Fatal(err)
				}
				if reads {
					if _, err := c.hear(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(time.Minute) // synthetic time
				if stats.Dropped.Load() != 1 || stats.Open.Load() != 0 {
					t.Errorf("%d were dropped, %d are there", stats.Dropped.Load(), stats.Open.Load())
				}
				if len(taken.all) != 1 {
					t.Errorf("taken was %+v", taken.all)
				}
			})
		})
	}
}

func TestWhoReadsIsKept(t *testing.T) {
	inBubble(t, func(t *testing.T, dial func(*ws.DialOptions) *client, stats *websocket.Stats, _ *memory) {
		pings := 0
		c := dial(&ws.DialOptions{OnPingReceived: func(context.Context, []byte) bool {
			pings++
			time.Sleep(4 * time.Second) // synthetic time: it is slow, and answers
			return true
		}})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute-time.Second)
		defer cancel()
		if _, err := c.hear(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("heard %v", err)
		}
		if pings != 5 || stats.Dropped.Load() != 0 {
			t.Errorf("%d pings came within a minute, %d were dropped", pings, stats.Dropped.Load())
		}
	})
}
