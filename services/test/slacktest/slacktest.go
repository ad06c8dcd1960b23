// Package slacktest is Slack for tests: Socket Mode with envelopes that are repeated until they are
// acknowledged, and the Web API with histories and faults.
package slacktest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/coder/websocket/wsjson"

	"skandha.dev/services/test/faulttest"
)

// The tokens, and the bot's user id.
const (
	AppToken = "xapp-slacktest"
	BotToken = "xoxb-slacktest"
	Bot      = "U0BOT"
)

// Object is a JSON object of the API.
type Object = map[string]any

// Server is Slack.
type Server struct {
	*faulttest.Server
	URL string

	mu        sync.Mutex
	conn      *websocket.Conn
	opened    int
	envelopes []Object // that are not acknowledged
	next      int
	messages  []Object // of the bot
	ephemeral []Object
	refusal   string // of the next chat.postMessage
	pageSize  int
}

// Start runs Slack until the test ends.
func Start(t testing.TB) *Server {
	t.Helper()
	s := &Server{pageSize: 3}
	s.Server = &faulttest.Server{RetryAfter: `{"ok":false,"error":"ratelimited","retry_after":2}`, Handler: http.HandlerFunc(s.serve)}
	server := httptest.NewServer(s.Server)
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
	s.URL = server.URL
	return s
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	method := strings.TrimPrefix(r.URL.Path, "/")
	if method == "socket" {
		s.socket(w, r)
		return
	}
	want := BotToken
	if method == "apps.connections.open" {
		want = AppToken
	}
	var in Object
	if r.Method == http.MethodPost {
		_ = json.NewDecoder(r.Body).Decode(&in)
	}
	w.Header().Set("Content-Type", "application/json")
	if r.Header.Get("Authorization") != "Bearer "+want {
		_ = json.NewEncoder(w).Encode(Object{"ok": false, "error": "invalid_auth"})
		return
	}
	_ = json.NewEncoder(w).Encode(s.call(method, in, r))
}

func (s *Server) call(method string, in Object, r *http.Request) Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch method {
	case "auth.test":
		return Object{"ok": true, "user_id": Bot}
	case "apps.connections.open":
		return Object{"ok": true, "url": "ws" + strings.TrimPrefix(s.URL, "http") + "/socket?ticket=secret"}
	case "conversations.open":
		return Object{"ok": true, "channel": Object{"id": "D" + fmt.Sprint(in["users"])[1:]}}
	case "chat.postEphemeral":
		s.ephemeral = append(s.ephemeral, in)
		return Object{"ok": true}
	case "chat.postMessage":
		if why := s.refusal; why != "" {
			s.refusal = ""
			return Object{"ok": false, "error": why}
		}
		in["ts"] = fmt.Sprintf("%d.%06d", time.Now().Unix(), len(s.messages))
		s.messages = append(s.messages, in)
		return Object{"ok": true, "ts": in["ts"]}
	case "conversations.history", "conversations.replies":
		return s.history(r)
	}
	return Object{"ok": false, "error": "unknown_method"}
}

// history returns a page of a conversation, or of a thread; s.mu is held.
func (s *Server) history(r *http.Request) Object {
	oldest, _ := strconv.ParseFloat(r.FormValue("oldest"), 64)
	from, _ := strconv.Atoi(r.FormValue("cursor"))
	var matching []Object
	for _, m := range s.messages {
		at, _ := strconv.ParseFloat(fmt.Sprint(m["ts"]), 64)
		thread, _ := m["thread_ts"].(string)
		if m["channel"] == r.FormValue("channel") && at >= oldest && thread == r.FormValue("ts") {
			matching = append(matching, m)
		}
	}
	end := min(from+s.pageSize, len(matching))
	return Object{
		"ok": true, "messages": matching[min(from, end):end], "has_more": end < len(matching),
		"response_metadata": Object{"next_cursor": fmt.Sprint(end)},
	}
}

// Refuse lets the next chat.postMessage fail with a code.
func (s *Server) Refuse(code string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refusal = code
}

// Sent returns the arguments of chat.postMessage.
func (s *Server) Sent() []Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Object(nil), s.messages...)
}

// Ephemeral returns the arguments of chat.postEphemeral.
func (s *Server) Ephemeral() []Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Object(nil), s.ephemeral...)
}

// Opened returns how many connections there were.
func (s *Server) Opened() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.opened
}

// Acknowledged reports whether all envelopes are acknowledged.
func (s *Server) Acknowledged() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.envelopes) == 0
}

// Envelope sends an envelope, or keeps it for the next connection.
func (s *Server) Envelope(kind string, payload Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next++
	e := Object{"envelope_id": fmt.Sprint("e", s.next), "type": kind, "payload": payload}
	s.envelopes = append(s.envelopes, e)
	s.write(e)
}

// Repeat sends all envelopes again that are not acknowledged.
func (s *Server) Repeat() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.envelopes {
		s.write(e)
	}
}

// write sends a message, if there is a connection; s.mu is held.
func (s *Server) write(v any) {
	if s.conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_ = wsjson.Write(ctx, s.conn, v)
}

// Say sends a message of a user.
func (s *Server) Say(channel, user, ts, text string, more Object) {
	e := Object{"type": "message", "channel": channel, "channel_type": "channel", "user": user, "ts": ts, "text": text}
	if strings.HasPrefix(channel, "D") {
		e["channel_type"] = "im"
	}
	for k, v := range more {
		e[k] = v
	}
	s.Envelope("events_api", Object{"event": e})
}

// Disconnect asks the gateway for a new connection.
func (s *Server) Disconnect() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.write(Object{"type": "disconnect", "reason": "refresh_requested"})
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

func (s *Server) socket(w http.ResponseWriter, r *http.Request) {
	c, err := websocket.Accept(w, r, nil)
	if err != nil {
		return
	}
	defer func() { _ = c.CloseNow() }()
	s.mu.Lock()
	s.conn = c
	s.opened++
	s.write(Object{"type": "hello"})
	for _, e := range s.envelopes {
		s.write(e)
	}
	s.mu.Unlock()
	for {
		var ack struct {
			ID string `json:"envelope_id"`
		}
		if err := wsjson.Read(r.Context(), c, &ack); err != nil {
			return
		}
		s.mu.Lock()
		for i, e := range s.envelopes {
			if e["envelope_id"] == ack.ID {
				s.envelopes = append(s.envelopes[:i:i], s.envelopes[i+1:]...)
				break
			}
		}
		s.mu.Unlock()
	}
}
