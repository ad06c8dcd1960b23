// Package matrixtest is a Matrix homeserver for tests: the part of the client-server API that a
// gateway uses, with transaction ids, long polling, gaps in timelines, and faults.
package matrixtest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"time"

	"skandha.dev/services/test/faulttest"
)

// Token is the gateway's access token, and User its id.
const (
	Token = "matrixtest-token"
	User  = "@agent:test.invalid"
)

// Event is an event of a room.
type Event struct {
	Room    string         `json:"-"`
	Type    string         `json:"type"`
	ID      string         `json:"event_id"`
	Sender  string         `json:"sender"`
	Time    int64          `json:"origin_server_ts"`
	Content map[string]any `json:"content"`
}

// Server is a homeserver.
type Server struct {
	*faulttest.Server
	URL string

	t            testing.TB
	mu           sync.Mutex
	changed      chan struct{}
	events       []Event
	transactions map[string]string // event by room and transaction id
	members      map[string][]string
	invites      map[string]string // who invites, by room
	joined       map[string]bool
	synced       int // syncs with a position
	pageSize     int // of a timeline; 0: no limit
}

// Start runs a homeserver until the test ends.
func Start(t testing.TB) *Server {
	t.Helper()
	s := &Server{
		t: t, changed: make(chan struct{}), transactions: map[string]string{}, members: map[string][]string{},
		invites: map[string]string{}, joined: map[string]bool{},
	}
	mux := http.NewServeMux()
	const v3 = "/_matrix/client/v3"
	mux.HandleFunc("GET "+v3+"/sync", s.sync)
	mux.HandleFunc("POST "+v3+"/join/{room}", s.join)
	mux.HandleFunc("GET "+v3+"/rooms/{room}/messages", s.messages)
	mux.HandleFunc("GET "+v3+"/rooms/{room}/members", s.list)
	mux.HandleFunc("PUT "+v3+"/rooms/{room}/send/m.room.message/{transaction}", s.send)
	s.Server = &faulttest.Server{RetryAfter: `{"errcode":"M_LIMIT_EXCEEDED","error":"slow down","retry_after_ms":1500}`, Handler: http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "Bearer "+Token {
				reply(w, http.StatusUnauthorized, map[string]any{"errcode": "M_UNKNOWN_TOKEN", "error": "unknown token"})
				return
			}
			mux.ServeHTTP(w, r)
		})}
	server := httptest.NewServer(s.Server)
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
	s.URL = server.URL
	return s
}

func reply(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

// Say adds a message, with an event id that may be a repetition.
func (s *Server) Say(room, sender, text, id string) {
	s.Add(Event{Room: room, Sender: sender, ID: id, Type: "m.room.message", Content: map[string]any{"msgtype": "m.text", "body": text}})
}

// Add adds an event.
func (s *Server) Add(e Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.add(e)
}

func (s *Server) add(e Event) {
	e.Time = time.Now().UnixMilli()
	s.events = append(s.events, e)
	s.change()
}

func (s *Server) change() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// Members sets who is in a room, beside the gateway.
func (s *Server) Members(room string, members ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.members[room] = members
}

// Invite invites the gateway.
func (s *Server) Invite(room, by string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.invites[room] = by
	s.change()
}

// Joined reports whether the gateway has joined a room.
func (s *Server) Joined(room string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.joined[room]
}

// Limit limits how many events of a room /sync and /messages return.
func (s *Server) Limit(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pageSize = n
}

// Reading reports whether the gateway has begun to follow.
func (s *Server) Reading() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.synced > 0
}

// Sent returns the messages of the gateway.
func (s *Server) Sent() (out []Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.events {
		if e.Sender == User {
			out = append(out, e)
		}
	}
	return out
}

// Forget forgets all transaction ids, as servers do after a while.
func (s *Server) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.transactions = map[string]string{}
}

func (s *Server) sync(w http.ResponseWriter, r *http.Request) {
	since, _ := strconv.Atoi(r.FormValue("since"))
	timeout, _ := strconv.Atoi(r.FormValue("timeout"))
	after := time.NewTimer(time.Duration(timeout) * time.Millisecond)
	defer after.Stop()
	for {
		s.mu.Lock()
		changed, n := s.changed, len(s.events)
		if r.FormValue("since") != "" {
			s.synced++
		}
		if n > since || len(s.invites) > 0 || timeout == 0 {
			body := s.state(since)
			s.mu.Unlock()
			reply(w, http.StatusOK, body)
			return
		}
		s.mu.Unlock()
		select {
		case <-changed:
		case <-after.C:
			timeout = 0
		case <-r.Context().Done():
			return
		}
	}
}

// state is the answer of /sync; s.mu is held.
func (s *Server) state(since int) map[string]any {
	rooms, first := map[string][]Event{}, map[string]int{}
	for i, e := range s.events[since:] {
		if _, ok := first[e.Room]; !ok {
			first[e.Room] = since + i
		}
		rooms[e.Room] = append(rooms[e.Room], e)
	}
	join := map[string]any{}
	for room, events := range rooms {
		timeline := map[string]any{"events": events, "limited": false}
		if n := s.pageSize; n > 0 && len(events) > n {
			kept := events[len(events)-n:]
			timeline = map[string]any{"events": kept, "limited": true, "prev_batch": fmt.Sprint(s.index(kept[0]))}
		}
		join[room] = map[string]any{"timeline": timeline}
	}
	invite := map[string]any{}
	for room, by := range s.invites {
		invite[room] = map[string]any{"invite_state": map[string]any{"events": []any{map[string]any{
			"type": "m.room.member", "state_key": User, "sender": by, "content": map[string]any{"membership": "invite"},
		}}}}
	}
	s.invites = map[string]string{}
	return map[string]any{"next_batch": fmt.Sprint(len(s.events)), "rooms": map[string]any{"join": join, "invite": invite}}
}

func (s *Server) index(e Event) int {
	for i := range s.events {
		if s.events[i].ID == e.ID && s.events[i].Room == e.Room {
			return i
		}
	}
	return 0
}

// messages returns the events before a position, newest first.
func (s *Server) messages(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	from, to := len(s.events), 0
	if v := r.FormValue("from"); v != "" {
		from, _ = strconv.Atoi(v)
	}
	if v := r.FormValue("to"); v != "" {
		to, _ = strconv.Atoi(v)
	}
	limit, _ := strconv.Atoi(r.FormValue("limit"))
	if s.pageSize > 0 {
		limit = min(limit, s.pageSize)
	}
	chunk, i := []Event{}, from-1
	for ; i >= to && len(chunk) < limit; i-- {
		if s.events[i].Room == r.PathValue("room") {
			chunk = append(chunk, s.events[i])
		}
	}
	body := map[string]any{"chunk": chunk, "start": fmt.Sprint(from)}
	if i >= to {
		body["end"] = fmt.Sprint(i + 1)
	}
	reply(w, http.StatusOK, body)
}

func (s *Server) join(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.joined[r.PathValue("room")] = true
	reply(w, http.StatusOK, map[string]any{"room_id": r.PathValue("room")})
}

func (s *Server) list(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	chunk := []any{}
	for _, m := range append([]string{User}, s.members[r.PathValue("room")]...) {
		chunk = append(chunk, map[string]any{"state_key": m, "content": map[string]any{"membership": "join"}})
	}
	reply(w, http.StatusOK, map[string]any{"chunk": chunk})
}

func (s *Server) send(w http.ResponseWriter, r *http.Request) {
	var c map[string]any
	if err := json.NewDecoder(r.Body).Decode(&c); err != nil {
		reply(w, http.StatusBadRequest, map[string]any{"errcode": "M_NOT_JSON", "error": err.Error()})
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	key := r.PathValue("room") + " " + r.PathValue("transaction")
	id, known := s.transactions[key]
	if !known {
		id = fmt.Sprintf("$sent%d", len(s.events))
		s.transactions[key] = id
		s.add(Event{Room: r.PathValue("room"), Type: "m.room.message", ID: id, Sender: User, Content: c})
	}
	reply(w, http.StatusOK, map[string]any{"event_id": id})
}
