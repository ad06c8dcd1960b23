package e2etest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"skandha.dev/services/internal/signature"
)

// Client is an HTTP client of one session of a whole system. It repeats an input under
// its id until it is acknowledged, and follows the session by server-sent events, from
// the last one seen.
type Client struct {
	Session string

	s    *System
	http *http.Client

	mu      sync.Mutex
	said    map[uint64]string // acknowledged inputs: sequence -> text
	ends    map[uint64]int    // onTurnEnd by sequence
	faults  []string
	changed chan struct{}
	refused map[string]int // answers other than the acknowledgement
}

// Client makes a client, which follows the session until the test ends.
func (s *System) Client(session string) *Client {
	c := &Client{
		Session: session, s: s, http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 8}},
		said: map[uint64]string{}, ends: map[uint64]int{}, changed: make(chan struct{}), refused: map[string]int{},
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); c.follow(ctx) }()
	s.T.Cleanup(func() { stop(); <-done; c.http.CloseIdleConnections() })
	return c
}

// Say sends an input to the bridge, or as a webhook to the listener, until it is
// acknowledged.
func (c *Client) Say(ctx context.Context, id, text string, hook bool) (seq uint64, err error) {
	send := c.toBridge
	if hook {
		send = c.toListener
	}
	for wait := 20 * time.Millisecond; ; wait = min(2*wait, 500*time.Millisecond) {
		tried, cancel := context.WithTimeout(ctx, 15*time.Second)
		seq, err = send(tried, id, text)
		cancel()
		if err == nil {
			c.change(func() { c.said[seq] = text })
			return seq, nil
		}
		why, _, _ := strings.Cut(err.Error(), "\n")
		c.change(func() { c.refused[why]++ })
		select {
		case <-ctx.Done():
			return 0, fmt.Errorf("%s, input %s: never acknowledged: %w", c.Session, id, err)
		case <-time.After(wait):
		}
	}
}

func (c *Client) toBridge(ctx context.Context, id, text string) (uint64, error) {
	body, err := json.Marshal(map[string]string{"input": text, "id": id})
	if err != nil {
		return 0, err
	}
	return c.post(ctx, "http://"+c.s.Page+"/v1/agents/main/sessions/"+c.Session+"/inputs", body,
		map[string]string{"Authorization": "Bearer " + Token})
}

func (c *Client) toListener(ctx context.Context, id, text string) (uint64, error) {
	body, err := json.Marshal(map[string]string{"session": c.Session, "text": text})
	if err != nil {
		return 0, err
	}
	now, key := time.Now(), []byte("e2e-secret-of-the-listener")
	return c.post(ctx, "http://"+c.s.Hooks+"/hooks/hook", body, map[string]string{
		signature.HeaderID: id, signature.HeaderTimestamp: strconv.FormatInt(now.Unix(), 10),
		signature.HeaderSignature: signature.Sign(key, id, now, body),
	})
}

func (c *Client) post(ctx context.Context, url string, body []byte, header map[string]string) (uint64, error) {
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	q.Header.Set("Content-Type", "application/json")
	for k, v := range header {
		q.Header.Set(k, v)
	}
	res, err := c.http.Do(q)
	if err != nil {
		return 0, fmt.Errorf("no answer\n%w", err)
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	if err != nil {
		return 0, fmt.Errorf("no answer\n%w", err)
	}
	var receipt struct{ Sequence uint64 }
	if res.StatusCode/100 != 2 {
		return 0, fmt.Errorf("status %d\n%.300s", res.StatusCode, text)
	}
	if err := json.Unmarshal(text, &receipt); err != nil || receipt.Sequence == 0 {
		return 0, fmt.Errorf("no receipt\n%.300s", text)
	}
	return receipt.Sequence, nil
}

// follow reads the session's events until ctx ends.
func (c *Client) follow(ctx context.Context) {
	last := place{}
	for ctx.Err() == nil {
		c.attach(ctx, &last)
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// place is the position of an event in the log.
type place struct{ seq, index uint64 }

func (p place) String() string { return fmt.Sprintf("%d.%d", p.seq, p.index) }

func readPlace(id string) (p place, ok bool) {
	n, err := fmt.Sscanf(id, "%d.%d", &p.seq, &p.index)
	return p, n == 2 && err == nil
}

// attach reads one connection's events. Events before last must not come again.
func (c *Client) attach(ctx context.Context, last *place) {
	q, err := http.NewRequestWithContext(ctx, http.MethodGet,
		"http://"+c.s.Page+"/v1/agents/main/sessions/"+c.Session+"/events?after=0", nil)
	if err != nil {
		c.fault("%v", err)
		return
	}
	q.Header.Set("Authorization", "Bearer "+Token)
	if *last != (place{}) {
		q.Header.Set("Last-Event-ID", last.String())
	}
	res, err := c.http.Do(q)
	if err != nil {
		return // the bridge is away
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		return
	}
	event := map[string]string{}
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		if field, value, ok := strings.Cut(lines.Text(), ": "); ok {
			event[field] = value
			continue
		}
		if lines.Text() == "" {
			c.hear(event, last)
			clear(event)
		}
	}
}

func (c *Client) hear(event map[string]string, last *place) {
	if id := event["id"]; id != "" {
		at, ok := readPlace(id)
		switch {
		case !ok:
			c.fault("event id %q cannot be read", id)
		case at.seq < last.seq || at.seq == last.seq && at.index <= last.index:
			c.fault("event %s came after %s: repeated or out of order", at, *last)
		}
		*last = at
	}
	if event["event"] != "onTurnEnd" {
		return
	}
	var end struct {
		Recorded, Failed *struct{ Sequence uint64 }
	}
	if err := json.Unmarshal([]byte(event["data"]), &end); err != nil {
		c.fault("onTurnEnd cannot be read: %v", err)
		return
	}
	of := end.Recorded
	if of == nil {
		of = end.Failed
	}
	if of != nil {
		c.change(func() { c.ends[of.Sequence]++ })
	}
}

func (c *Client) change(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
	close(c.changed)
	c.changed = make(chan struct{})
}

func (c *Client) fault(format string, args ...any) {
	c.change(func() { c.faults = append(c.faults, c.Session+": "+fmt.Sprintf(format, args...)) })
}

// Ended waits until the client has seen the end of its input.
func (c *Client) Ended(ctx context.Context, seq uint64) error {
	for {
		c.mu.Lock()
		n, changed := c.ends[seq], c.changed
		c.mu.Unlock()
		if n > 0 {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("%s: the client never saw the end of %d", c.Session, seq)
		}
	}
}

// Check compares what the client has seen with the log, and returns the differences:
// every acknowledged input must be in the log, unchanged, and end once.
func (c *Client) Check(l *Log) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	bad := append([]string(nil), c.faults...)
	at := map[uint64]Entry{}
	for _, e := range l.Causes("main." + c.Session) {
		at[e.Seq] = e
	}
	for seq, text := range c.said {
		var in struct{ Text string }
		if e, ok := at[seq]; !ok || json.Unmarshal(e.Data, &in) != nil || in.Text != text {
			bad = append(bad, fmt.Sprintf("%s: an input was acknowledged at %d, where the log has %.200s",
				c.Session, seq, e.Data))
		}
		if n := c.ends[seq]; n != 1 {
			bad = append(bad, fmt.Sprintf("%s: the client saw the end of %d %d times", c.Session, seq, n))
		}
	}
	return bad
}

// Refusals counts the answers to inputs other than the acknowledgement.
func (c *Client) Refusals(into map[string]int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for why, n := range c.refused {
		into[why] += n
	}
}
