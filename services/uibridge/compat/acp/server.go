package acp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"
	"unicode/utf8"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/bounds"
	"skandha.dev/services/uibridge/contract"
	"skandha.dev/services/uibridge/rpc/jsonrpc"
)

// Config configures a server. A zero field means its default.
type Config struct {
	MaxMessage int           `default:"32 MiB"` // bytes of a line; images are in it as base64
	AtOnce     int           `default:"64"`     // requests in flight
	Leave      time.Duration `default:"5s"`     // how long inputs that are being stored are waited for at the end
}

// System is the system that the client talks to.
type System struct {
	Backend   contract.Backend
	Principal contract.Principal
	// Store stores a file that the client sends, under the name of an artifact.
	Store func(ctx context.Context, name string, data []byte) error
	// Workspace is the directory in which the file tools of group file_system work, if it is on
	// this machine and known; else empty.
	Workspace string
}

// Options are what a server needs.
type Options struct {
	Config
	Agent    subject.Agent
	Version  string    // of this program
	Commands []Command // the slash commands
	// Open connects to the system when the client initialises. Its errors are for the client, and
	// say what to do.
	Open func(context.Context) (System, error)
	Log  *slog.Logger
}

// Command is a slash command.
type Command struct{ Name, Args, Help string }

// server serves one client.
type server struct {
	Options
	conn *conn
	dir  string // where it runs, for listed sessions

	life context.Context //nolint:containedctx // of the connection: what is followed ends with it
	work sync.WaitGroup

	mu       sync.Mutex
	busy     map[string]bool // ids of requests in flight
	state    state
	sys      System
	notices  bool // the client shows notices
	sessions map[subject.Session]*session
}

type state int

const (
	fresh state = iota
	opening
	ready
)

// handler begins a request. It is called in the order of the messages and must not wait; what
// takes time it does with server.work. Answer must be called once, at any time.
type handler func(s *server, c jsonrpc.Call, answer answerer)

type answerer func(result any, err error)

var requests = map[string]handler{
	"initialize":     (*server).initialize,
	"session/new":    (*server).newSession,
	"session/load":   (*server).loadSession,
	"session/resume": (*server).resumeSession,
	"session/list":   (*server).listSessions,
	"session/prompt": (*server).prompt,
	"session/close":  (*server).closeSession,
}

var notifications = map[string]func(s *server, params json.RawMessage) error{
	"session/cancel": (*server).cancelSession,
	onCancel:         (*server).cancelRequest,
}

// Serve serves the client until the input or ctx ends; dir is the directory in which it runs.
func Serve(ctx context.Context, o Options, dir string, in io.Reader, out io.Writer) error {
	o.Config = bounds.Filled(o.Config)
	o.Log = o.Log.With("transport", "acp")
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	s := &server{
		Options: o, dir: dir, life: life, busy: map[string]bool{}, sessions: map[subject.Session]*session{},
		conn: newConn(o.Log, out),
	}
	// What is being answered may wait for a client that does not read
	defer context.AfterFunc(ctx, func() { time.AfterFunc(o.Leave, s.conn.leave) })()
	input := make(chan line)
	go func() { // it cannot be stopped while it reads, and ends with the process then
		defer close(input)
		lines(in, o.MaxMessage, func(l line) bool {
			select {
			case input <- l:
				return true
			case <-life.Done():
				return false
			}
		})
	}()
	for open := true; open; {
		var l line
		select {
		case l, open = <-input:
			if open {
				s.take(l)
			}
		case <-ctx.Done():
			open = false
		case <-s.conn.gone.Done():
			open = false
		}
	}
	s.leave(end)
	s.conn.end(o.Leave)
	return nil
}

// leave answers what is open, and waits briefly for inputs that are being stored.
func (s *server) leave(end func()) {
	s.mu.Lock()
	all := s.sessions
	s.sessions = map[subject.Session]*session{}
	s.mu.Unlock()
	for _, session := range all {
		session.end(nil, errLeaving)
	}
	end()
	done := make(chan struct{})
	go func() { s.work.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(s.Leave):
		s.Log.Warn("leaving before all inputs were acknowledged")
	}
}

var errLeaving = &contract.Error{
	Code:    contract.CodeUnavailable,
	Message: "skandha acp is ending; the turn continues, and session/load shows it",
}

// take handles a line.
func (s *server) take(l line) {
	switch {
	case l.long:
		s.conn.fail(l.id(), &fault{
			Code:    codeRequest,
			Message: fmt.Sprintf("the message has more than %d bytes, which is the limit", s.MaxMessage),
		})
		return
	case !utf8.Valid(l.text):
		s.conn.fail(nil, &fault{Code: codeParse, Message: "the message is not valid UTF-8"})
		return
	case s.conn.answered(l.text):
		return
	case l.text[0] == '[':
		s.conn.fail(nil, &fault{Code: codeRequest, Message: "batches are not supported; send each message on its own line"})
		return
	}
	calls, _ := jsonrpc.Parse(l.text)
	c := calls[0]
	switch {
	case c.Failed != nil:
		s.conn.write(c.Failed)
	case c.ID == nil:
		s.notified(c)
	default:
		s.request(c)
	}
}

func (s *server) notified(c jsonrpc.Call) {
	f := notifications[c.Method]
	if f == nil {
		s.Log.Debug("ignored an unknown notification", "method", c.Method)
		return
	}
	if err := f(s, c.Params); err != nil {
		s.Log.Warn("a notification failed", "method", c.Method, "error", err)
	}
}

// request begins a request and answers it, at once or later.
func (s *server) request(c jsonrpc.Call) {
	f, known := requests[c.Method]
	id := string(c.ID)
	s.mu.Lock()
	var err error
	switch {
	case s.busy[id]:
		// An answer with this id would be taken for that of the other request.
		c.ID = nil
		err = &fault{Code: codeRequest, Message: fmt.Sprintf("the id %.64s is that of a request in flight", id)}
	case len(s.busy) >= s.AtOnce:
		err = &contract.Error{Code: contract.CodeRateLimited, Message: "too many requests in flight; wait for answers"}
	case !known && c.Method == "authenticate":
		err = contract.Invalid("methodId", "no authentication is needed: initialize lists no methods")
	case !known:
		err = &contract.Error{Code: contract.CodeUnknownMethod, Message: fmt.Sprintf("unknown method %.64q", c.Method)}
	case s.state != ready && c.Method != "initialize":
		err = &fault{Code: codeRequest, Message: "not initialised; send initialize first, and wait for its answer"}
	case len(c.Params) > 0 && c.Params[0] != '{':
		err = contract.Invalid("params", "want an object")
	default:
		s.busy[id] = true
	}
	s.mu.Unlock()
	if err != nil {
		s.conn.fail(c.ID, err)
		return
	}
	var once sync.Once
	f(s, c, func(result any, err error) {
		once.Do(func() {
			s.mu.Lock()
			delete(s.busy, id)
			s.mu.Unlock()
			if err != nil {
				s.Log.Debug("request refused", "method", c.Method, "error", err)
				s.conn.fail(c.ID, err)
				return
			}
			s.conn.succeed(c.ID, result)
		})
	})
}

// decode decodes parameters. Unknown fields are ignored: later versions of the protocol may
// have more.
func decode(params json.RawMessage, into any) error {
	if len(params) == 0 {
		return contract.Invalid("params", "missing")
	}
	err := json.Unmarshal(params, into)
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return contract.Invalid(e.Field, fmt.Sprintf("want a %s, not a JSON %s", e.Type, e.Value))
	}
	if err != nil {
		return contract.Invalid("params", err.Error())
	}
	return nil
}

// initialize connects to the system.
func (s *server) initialize(c jsonrpc.Call, answer answerer) {
	var q initializeRequest
	err := decode(c.Params, &q)
	if err == nil && q.ProtocolVersion == nil {
		err = contract.Invalid("protocolVersion", "missing; send the latest version that you support, such as 1")
	}
	s.mu.Lock()
	if err == nil && s.state != fresh {
		err = &fault{Code: codeRequest, Message: "initialize was sent before"}
	}
	if err == nil {
		s.state = opening
	}
	s.mu.Unlock()
	if err != nil {
		answer(nil, err)
		return
	}
	s.work.Go(func() {
		sys, err := s.Open(s.life)
		s.mu.Lock()
		if s.state = ready; err != nil {
			s.state = fresh
		}
		n := q.ClientCapabilities.Session.Notices
		s.sys, s.notices = sys, len(n) > 0 && string(n) != "null"
		s.mu.Unlock()
		if err != nil {
			s.Log.Error("no system", "error", err)
			answer(nil, &contract.Error{Code: contract.CodeUnavailable, Message: err.Error()})
			return
		}
		r := initializeResponse{
			ProtocolVersion: version, AuthMethods: []struct{}{},
			AgentInfo: implementation{Name: "skandha", Title: "Skandha: " + string(s.Agent), Version: s.Version},
		}
		r.AgentCapabilities.LoadSession = true
		r.AgentCapabilities.Capabilities.Image = true
		r.AgentCapabilities.Capabilities.EmbeddedContext = true
		answer(r, nil)
	})
}
