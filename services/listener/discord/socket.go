package discord

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"skandha.dev/services/listener/chat"
)

// The operations of the gateway.
const (
	opDispatch       = 0
	opHeartbeat      = 1
	opIdentify       = 2
	opResume         = 6
	opReconnect      = 7
	opInvalidSession = 9
	opHello          = 10
	opHeartbeatAck   = 11
)

const (
	intents   = 1<<9 | 1<<12 | 1<<15 // messages of guilds, direct messages, their content
	maxFrame  = 4 << 20              // bytes
	helloWait = 30 * time.Second
	writeWait = 10 * time.Second
)

// frame is a message of the gateway.
type frame struct {
	Op   int             `json:"op"`
	Data json.RawMessage `json:"d"`
	Seq  *int64          `json:"s,omitempty"`
	Type string          `json:"t,omitempty"`
}

// position is how far a session was read, as it is stored.
type position struct {
	Session string `json:"session,omitempty"`
	URL     string `json:"url,omitempty"` // to resume at
	Seq     int64  `json:"seq,omitempty"`
	User    string `json:"user,omitempty"` // the bot's id
}

// errInvalid means that the session cannot be resumed.
var errInvalid = errors.New("the session has ended; a new one begins")

// socket is a connection to the gateway. One goroutine reads.
type socket struct {
	*websocket.Conn
	token string
	every time.Duration // between heartbeats
	seq   atomic.Int64
	acked atomic.Bool // the last heartbeat
}

// open connects, and identifies the bot or resumes its session.
func open(ctx context.Context, address, token string, at position) (*socket, error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "wss" && u.Scheme != "ws" {
		return nil, fmt.Errorf("the address of the gateway is no WebSocket")
	}
	if err := chat.CheckBase("the gateway's address", "http"+address[len("ws"):]); err != nil {
		return nil, err
	}
	u.RawQuery = "v=10&encoding=json"
	ctx, cancel := context.WithTimeout(ctx, helloWait)
	defer cancel()
	c, _, err := websocket.Dial(ctx, u.String(), nil) //nolint:bodyclose // the library closes it
	if err != nil {
		return nil, err
	}
	c.SetReadLimit(maxFrame)
	s := &socket{Conn: c, token: token}
	s.seq.Store(at.Seq)
	s.acked.Store(true)
	if err := s.begin(ctx, at); err != nil {
		_ = c.CloseNow()
		return nil, err
	}
	return s, nil
}

func (s *socket) begin(ctx context.Context, at position) error {
	f, err := s.next(ctx)
	if err != nil {
		return err
	}
	var hello struct {
		Interval int64 `json:"heartbeat_interval"`
	}
	if err := json.Unmarshal(f.Data, &hello); f.Op != opHello || err != nil || hello.Interval <= 0 {
		return errors.New("the gateway does not begin with a hello")
	}
	s.every = time.Duration(hello.Interval) * time.Millisecond
	if at.Session != "" {
		return s.send(ctx, opResume, map[string]any{"token": s.token, "session_id": at.Session, "seq": at.Seq})
	}
	return s.send(ctx, opIdentify, map[string]any{
		"token": s.token, "intents": intents, "properties": map[string]string{"os": "linux", "browser": "skandha", "device": "skandha"},
	})
}

func (s *socket) next(ctx context.Context) (f frame, err error) {
	_, body, err := s.Read(ctx)
	if err == nil {
		err = json.Unmarshal(body, &f)
	}
	return f, err
}

func (s *socket) send(ctx context.Context, op int, data any) error {
	body, err := json.Marshal(map[string]any{"op": op, "d": data})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, writeWait)
	defer cancel()
	return s.Write(ctx, websocket.MessageText, body)
}

// beat sends heartbeats until ctx ends, or one is not acknowledged: then it closes the connection.
func (s *socket) beat(ctx context.Context) {
	wait := rand.N(s.every) // not all at once after an outage
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		if !s.acked.Swap(false) || s.heartbeat(ctx) != nil {
			_ = s.CloseNow()
			return
		}
		wait = s.every
	}
}

func (s *socket) heartbeat(ctx context.Context) error {
	var seq any
	if n := s.seq.Load(); n > 0 {
		seq = n
	}
	return s.send(ctx, opHeartbeat, seq)
}
