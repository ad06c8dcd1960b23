// Package discordtest is Discord for tests: the gateway with heartbeats and resumption, and the REST API
// with nonces and faults.
package discordtest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/coder/websocket/wsjson"

	"skandha.dev/services/test/faulttest"
)

// Token is the bot's token, and Bot its user id.
const (
	Token = "discordtest-token"
	Bot   = "9000000001"
)

// Object is a JSON object of the API.
type Object = map[string]any

// Server is Discord.
type Server struct {
	*faulttest.Server
	URL string
	// Interval is the time between heartbeats; set it before the gateway connects.
	Interval time.Duration

	mu       sync.Mutex
	conn     *websocket.Conn
	seq      int
	events   []Object // that were sent in the session
	session  int      // number of the session
	began    []string // "identify" and "resume", in order
	silent   bool     // heartbeats are not acknowledged
	channels map[string]Object
	messages []Object
	nonces   map[string]Object
	answers  []Object // to interactions
	nextID   int64
}

// Start runs Discord until the test ends.
func Start(t testing.TB) *Server {
	t.Helper()
	s := &Server{Interval: 10 * time.Second, channels: map[string]Object{}, nonces: map[string]Object{}}
	s.Server = &faulttest.Server{
		RetryAfter: `{"message":"You are being rate limited.","retry_after":0.25,"global":false}`, Handler: http.HandlerFunc(s.serve),
	}
	server := httptest.NewServer(s.Server)
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
	s.URL = server.URL
	return s
}

// Channel adds a channel.
func (s *Server) Channel(id string, kind int, parent string, recipients ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := Object{"id": id, "type": kind, "parent_id": parent}
	var users []Object
	for _, r := range recipients {
		users = append(users, Object{"id": r})
	}
	c["recipients"] = users
	s.channels[id] = c
}

func reply(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/socket" {
		s.socket(w, r)
		return
	}
	if r.Header.Get("Authorization") != "Bot "+Token {
		reply(w, http.StatusUnauthorized, Object{"message": "401: Unauthorized"})
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case r.URL.Path == "/gateway/bot":
		reply(w, http.StatusOK, Object{"url": "ws" + strings.TrimPrefix(s.URL, "http") + "/socket"})
	case r.URL.Path == "/users/@me":
		reply(w, http.StatusOK, Object{"id": Bot})
	case parts[0] == "interactions" && len(parts) == 4:
		var in Object
		_ = json.NewDecoder(r.Body).Decode(&in)
		s.answers = append(s.answers, in)
		w.WriteHeader(http.StatusNoContent)
	case parts[0] == "channels" && s.channels[parts[1]] == nil:
		reply(w, http.StatusNotFound, Object{"message": "Unknown Channel"})
	case parts[0] == "channels" && len(parts) == 2:
		reply(w, http.StatusOK, s.channels[parts[1]])
	case r.Method == http.MethodGet:
		s.history(w, r, parts[1])
	default:
		s.create(w, r, parts[1])
	}
}

// history returns messages, newest first.
func (s *Server) history(w http.ResponseWriter, r *http.Request, channel string) {
	limit, _ := strconv.Atoi(r.FormValue("limit"))
	after, _ := strconv.ParseInt(r.FormValue("after"), 10, 64)
	page := []Object{}
	for _, m := range s.messages {
		if id, _ := strconv.ParseInt(m["id"].(string), 10, 64); m["channel_id"] == channel && id > after && len(page) < limit {
			page = append(page, m)
		}
	}
	slices.Reverse(page)
	reply(w, http.StatusOK, page)
}

func (s *Server) create(w http.ResponseWriter, r *http.Request, channel string) {
	var in Object
	_ = json.NewDecoder(r.Body).Decode(&in)
	content, _ := in["content"].(string)
	key, _ := in["nonce"].(string)
	if content == "" || len([]rune(content)) > 2000 || len(key) > 25 {
		reply(w, http.StatusBadRequest, Object{"message": "Invalid Form Body"})
		return
	}
	m, known := s.nonces[channel+key]
	if !known || in["enforce_nonce"] != true {
		m = Object{"id": s.id(), "channel_id": channel, "author": Object{"id": Bot, "bot": true}, "content": content, "components": in["components"]}
		s.nonces[channel+key] = m
		s.messages = append(s.messages, m)
	}
	reply(w, http.StatusOK, m)
}

// id returns the next id; s.mu is held.
func (s *Server) id() string {
	s.nextID = max(s.nextID+1, (time.Now().UnixMilli()-1420070400000)<<22)
	return strconv.FormatInt(s.nextID, 10)
}

// Sent returns the messages of the bot.
func (s *Server) Sent() []Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Object(nil), s.messages...)
}

// Answers returns the answers to interactions.
func (s *Server) Answers() []Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Object(nil), s.answers...)
}

// Forget forgets all nonces, as Discord does after some minutes.
func (s *Server) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nonces = map[string]Object{}
}

// Event sends an event, or keeps it for a resumption.
func (s *Server) Event(kind string, data Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seq++
	e := Object{"op": 0, "t": kind, "s": s.seq, "d": data}
	s.events = append(s.events, e)
	s.write(s.conn, e)
}

// write sends a frame, if there is a connection; s.mu is held.
func (s *Server) write(c *websocket.Conn, v any) {
	if c == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_ = wsjson.Write(ctx, c, v)
}

// Say sends a message of a user.
func (s *Server) Say(channel, user, id, text string, more Object) {
	m := Object{"id": id, "channel_id": channel, "author": Object{"id": user, "username": "ann"}, "content": text, "type": 0}
	for k, v := range more {
		m[k] = v
	}
	s.Event("MESSAGE_CREATE", m)
}

// Command sends an operation to the gateway, such as 7.
func (s *Server) Command(op int, data any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.write(s.conn, Object{"op": op, "d": data})
}

// Drop ends the connection without closing it.
func (s *Server) Drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn != nil {
		_ = s.conn.CloseNow()
		s.conn = nil
	}
}

// Silence stops the acknowledgement of heartbeats in the current connection.
func (s *Server) Silence() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.silent = true
}

// End ends the session: it cannot be resumed.
func (s *Server) End() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.session++
	s.events, s.seq = nil, 0
}

// Began returns how the connections have begun: identify or resume.
func (s *Server) Began() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.began...)
}

func (s *Server) socket(w http.ResponseWriter, r *http.Request) {
	c, err := websocket.Accept(w, r, nil)
	if err != nil {
		return
	}
	defer func() { _ = c.CloseNow() }()
	s.write(c, Object{"op": 10, "d": Object{"heartbeat_interval": s.Interval.Milliseconds()}})
	for {
		var f struct {
			Op   int             `json:"op"`
			Data json.RawMessage `json:"d"`
		}
		if err := wsjson.Read(r.Context(), c, &f); err != nil {
			return
		}
		s.mu.Lock()
		switch f.Op {
		case 1:
			if !s.silent {
				s.write(c, Object{"op": 11})
			}
		case 2:
			s.identify(c, f.Data)
		case 6:
			s.resume(c, f.Data)
		}
		s.mu.Unlock()
	}
}

func (s *Server) sessionID() string { return fmt.Sprintf("session-%d", s.session) }

func (s *Server) identify(c *websocket.Conn, data json.RawMessage) {
	var in struct {
		Token   string `json:"token"`
		Intents int    `json:"intents"`
	}
	if json.Unmarshal(data, &in) != nil || in.Token != Token || in.Intents&(1<<15) == 0 {
		_ = c.Close(4004, "Authentication failed.")
		return
	}
	s.session++
	s.events, s.seq, s.conn, s.silent = nil, 1, c, false
	s.began = append(s.began, "identify")
	s.write(c, Object{"op": 0, "t": "READY", "s": 1, "d": Object{
		"session_id": s.sessionID(), "resume_gateway_url": "ws" + strings.TrimPrefix(s.URL, "http") + "/socket",
		"user": Object{"id": Bot, "username": "agent"},
	}})
}

func (s *Server) resume(c *websocket.Conn, data json.RawMessage) {
	var in struct {
		Token   string `json:"token"`
		Session string `json:"session_id"`
		Seq     int    `json:"seq"`
	}
	s.began = append(s.began, "resume")
	if json.Unmarshal(data, &in) != nil || in.Token != Token || in.Session != s.sessionID() {
		s.write(c, Object{"op": 9, "d": false})
		return
	}
	s.conn, s.silent = c, false
	for _, e := range s.events {
		if e["s"].(int) > in.Seq {
			s.write(c, e)
		}
	}
	s.seq++
	e := Object{"op": 0, "t": "RESUMED", "s": s.seq, "d": Object{}}
	s.events = append(s.events, e)
	s.write(c, e)
}
