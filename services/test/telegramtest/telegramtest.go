// Package telegramtest is the Bot API of Telegram for tests: the methods that a gateway uses, with
// updates that are repeated until they are confirmed, and faults.
package telegramtest

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"skandha.dev/services/test/faulttest"
)

// Token is the bot's token, ID its user id and Name its user name.
const (
	Token = "123456:telegramtest_token"
	ID    = 123456
	Name  = "agent_bot"
)

// Object is a JSON object of the API.
type Object = map[string]any

// Server is the API.
type Server struct {
	*faulttest.Server
	URL string

	mu      sync.Mutex
	changed chan struct{}
	updates []Object
	next    int // id of the next update
	sent    []Object
	alerts  []Object
	polls   int
}

// Start runs the API until the test ends.
func Start(t testing.TB) *Server {
	t.Helper()
	s := &Server{changed: make(chan struct{}), next: 100}
	s.Server = &faulttest.Server{
		RetryAfter: `{"ok":false,"error_code":429,"description":"Too Many Requests: retry after 3","parameters":{"retry_after":3}}`,
		Handler:    http.HandlerFunc(s.serve),
	}
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

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	method, found := strings.CutPrefix(r.URL.Path, "/bot"+Token+"/")
	var in Object
	switch err := json.NewDecoder(r.Body).Decode(&in); {
	case !found:
		reply(w, http.StatusUnauthorized, Object{"ok": false, "description": "Unauthorized"})
		return
	case err != nil:
		reply(w, http.StatusBadRequest, Object{"ok": false, "description": "Bad Request: " + err.Error()})
		return
	}
	result := func(v any) { reply(w, http.StatusOK, Object{"ok": true, "result": v}) }
	switch method {
	case "getMe":
		result(Object{"id": ID, "is_bot": true, "username": Name})
	case "getUpdates":
		offset, _ := in["offset"].(float64)
		seconds, _ := in["timeout"].(float64)
		result(s.poll(r, int(offset), time.Duration(seconds)*time.Second))
	case "sendMessage":
		if text, _ := in["text"].(string); text == "" || len([]rune(text)) > 4096 {
			reply(w, http.StatusBadRequest, Object{"ok": false, "description": "Bad Request: message text is empty or too long"})
			return
		}
		s.mu.Lock()
		s.sent = append(s.sent, in)
		n := len(s.sent)
		s.mu.Unlock()
		result(Object{"message_id": n})
	case "answerCallbackQuery":
		s.mu.Lock()
		s.alerts = append(s.alerts, in)
		s.mu.Unlock()
		result(true)
	default:
		reply(w, http.StatusNotFound, Object{"ok": false, "description": "Not Found"})
	}
}

// poll returns the updates from an offset on, and forgets those before.
func (s *Server) poll(r *http.Request, offset int, wait time.Duration) []Object {
	after := time.NewTimer(wait)
	defer after.Stop()
	for {
		s.mu.Lock()
		s.polls++
		for len(s.updates) > 0 && s.updates[0]["update_id"].(int) < offset {
			s.updates = s.updates[1:]
		}
		updates, changed := append([]Object{}, s.updates...), s.changed
		s.mu.Unlock()
		if len(updates) > 0 {
			return updates
		}
		select {
		case <-changed:
		case <-after.C:
			return updates
		case <-r.Context().Done():
			return updates
		}
	}
}

// Update adds an update, such as {"message": …}.
func (s *Server) Update(u Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	u["update_id"] = s.next
	s.next++
	s.updates = append(s.updates, u)
	close(s.changed)
	s.changed = make(chan struct{})
}

// Confirmed reports whether the gateway has confirmed all updates.
func (s *Server) Confirmed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.updates) == 0
}

// Sent returns the arguments of sendMessage.
func (s *Server) Sent() []Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Object(nil), s.sent...)
}

// Alerts returns the arguments of answerCallbackQuery.
func (s *Server) Alerts() []Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Object(nil), s.alerts...)
}

// Say adds a message of a user: in a group if the chat's id is negative.
func (s *Server) Say(chat, from, id int, text string, more Object) {
	kind := "private"
	if chat < 0 {
		kind = "supergroup"
	}
	m := Object{
		"message_id": id, "from": Object{"id": from, "first_name": "Somebody", "username": "ann"}, "chat": Object{"id": chat, "type": kind},
		"text": text,
	}
	for k, v := range more {
		m[k] = v
	}
	s.Update(Object{"message": m})
}
