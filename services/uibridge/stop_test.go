package uibridge_test

import (
	"bufio"
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"skandha.dev/services/test/natstest"
	"skandha.dev/services/test/transporttest"
	"skandha.dev/services/uibridge/contract"
)

// Every client that follows a session learns that the bridge stops, over every transport.
func TestStreamsAreToldThatTheBridgeStops(t *testing.T) {
	l := transporttest.Start(t)
	ctx, client := natstest.Context(t), &http.Client{Transport: l.Transport()}

	ws, _, err := websocket.Dial(ctx, strings.Replace(l.URL, "http", "ws", 1)+"/v1/ws?session=s", //nolint:bodyclose // of an upgrade it is nil
		&websocket.DialOptions{HTTPClient: client})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ws.CloseNow() }()
	if _, body, err := ws.Read(ctx); err != nil || !strings.Contains(string(body), contract.OnAttached) {
		t.Fatalf("the WebSocket begins with %s, %v", body, err)
	}
	events := follow(ctx, t, client, l.URL+"/v1/agents/main/sessions/s/events")
	natstest.Eventually(t, "the stream is attached", func() bool {
		return events.Scan() && strings.HasPrefix(events.Text(), "event: "+contract.OnAttached)
	})

	l.Stop()
	var last string
	for err == nil {
		var body []byte
		if _, body, err = ws.Read(ctx); err == nil {
			last = string(body)
		}
	}
	if websocket.CloseStatus(err) != websocket.StatusGoingAway || !strings.Contains(last, contract.OnDropped) {
		t.Errorf("the WebSocket ended with %v after %s", err, last)
	}
	var rest []string
	for events.Scan() {
		rest = append(rest, events.Text())
	}
	if all := strings.Join(rest, "\n"); events.Err() != nil || !strings.Contains(all, "event: "+contract.OnDropped) ||
		!strings.Contains(all, contract.ErrGoingAway.Message) {
		t.Errorf("the stream ended with %v after %s", events.Err(), all)
	}
}

func follow(ctx context.Context, t *testing.T, c *http.Client, url string) *bufio.Scanner {
	t.Helper()
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := c.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = res.Body.Close() })
	return bufio.NewScanner(res.Body)
}
