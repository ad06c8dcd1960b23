// Package faulttest makes an HTTP server of a test fail, as servers and networks do.
package faulttest

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
)

// Fault is what becomes of a request.
type Fault int

// The faults.
const (
	Limited     Fault = iota // 429, and nothing is done
	Broken                   // 500, and nothing is done
	BrokenAfter              // it is done, and the answer is 502
	Lost                     // the connection ends before the request is handled
	LostAfter                // it is done, and the connection ends instead of an answer
	Garbage                  // it is done, and the answer is no JSON
)

// Server is a handler that fails when a test says so.
type Server struct {
	http.Handler
	// RetryAfter is the body of a 429.
	RetryAfter string

	mu     sync.Mutex
	faults []planned
}

type planned struct {
	path  string
	fault Fault
}

// Fail lets the next request whose path contains a text fail.
func (s *Server) Fail(path string, faults ...Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range faults {
		s.faults = append(s.faults, planned{path, f})
	}
}

func (s *Server) next(path string) (Fault, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, p := range s.faults {
		if strings.Contains(path, p.path) {
			s.faults = append(s.faults[:i:i], s.faults[i+1:]...)
			return p.fault, true
		}
	}
	return 0, false
}

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	fault, fails := s.next(r.URL.Path)
	if !fails {
		s.Handler.ServeHTTP(w, r)
		return
	}
	if fault == BrokenAfter || fault == LostAfter || fault == Garbage {
		s.Handler.ServeHTTP(httptest.NewRecorder(), r)
	}
	switch fault {
	case Limited:
		w.WriteHeader(http.StatusTooManyRequests)
		_, _ = w.Write([]byte(s.RetryAfter))
	case Broken:
		http.Error(w, "internal error", http.StatusInternalServerError)
	case BrokenAfter:
		http.Error(w, "<html>bad gateway</html>", http.StatusBadGateway)
	case Garbage:
		_, _ = w.Write([]byte("<html>"))
	case Lost, LostAfter:
		panic(http.ErrAbortHandler)
	}
}
