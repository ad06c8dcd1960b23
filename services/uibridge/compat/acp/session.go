package acp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/uibridge/compat/turn"
	"skandha.dev/services/uibridge/contract"
	"skandha.dev/services/uibridge/request"
	"skandha.dev/services/uibridge/rpc/jsonrpc"
)

// session is a session that the client has open.
type session struct {
	server *server
	ref    subject.Ref
	life   context.Context //nolint:containedctx // of what follows it
	stop   context.CancelFunc
	over   chan struct{} // closed when it is followed no more

	mu sync.Mutex // held while a notification is handled
	translator
	loading answerer // of session/load, until the past was sent
	until   string   // where the past ends
	quiet   *time.Timer
	asks    map[string]*asked // permission requests that wait, by confirmation id

	prompting sync.Mutex
	prompts   map[string]*prompt // that wait for the end of their turn, by the input's id
	closed    bool
}

// The pauses while the log of a session that is loaded says nothing more, and before a feed is
// attached again.
const (
	quietFor   = time.Second
	retryPause = time.Second
)

func (s *server) newSession(c jsonrpc.Call, answer answerer) {
	s.open(c, answer, "", func(q *openRequest) { q.SessionID = string(request.Fresh()) })
}

func (s *server) loadSession(c jsonrpc.Call, answer answerer) { s.open(c, answer, "0", nil) }

func (s *server) resumeSession(c jsonrpc.Call, answer answerer) { s.open(c, answer, "", nil) }

// open begins to follow a session after an id. For a new one, name gives it a name.
func (s *server) open(c jsonrpc.Call, answer answerer, after string, name func(*openRequest)) {
	var q openRequest
	err := decode(c.Params, &q)
	if err == nil && !filepath.IsAbs(q.Cwd) {
		err = contract.Invalid("cwd", "want an absolute path")
	}
	if name != nil {
		name(&q)
	}
	ref, refErr := request.Ref(string(s.Agent), q.SessionID)
	if err = errors.Join(err, refErr); err != nil {
		answer(nil, err)
		return
	}
	s.work.Go(func() {
		x, err := s.follow(ref, after, name != nil)
		if err != nil {
			answer(nil, err)
			return
		}
		r := openResponse{Meta: s.meta(&q)}
		if name != nil {
			r.SessionID = ref.Session
		}
		opened := func(_ any, err error) {
			answer(r, err)
			if err == nil {
				x.welcome(&q)
			}
		}
		x.begin(after, opened)
	})
}

// meta says what of the request has no effect.
func (s *server) meta(q *openRequest) map[string]any {
	m := map[string]any{"agent": s.Agent, "session": q.SessionID}
	if s.sys.Workspace != "" {
		m["workspace"] = s.sys.Workspace
	}
	if names := q.unused(); len(names) > 0 {
		m["unusedMcpServers"] = names
	}
	return map[string]any{"skandha.dev": m}
}

func (q *openRequest) unused() (names []string) {
	for _, m := range q.MCPServers {
		names = append(names, m.Name)
	}
	return names
}

// follow attaches to a session, which must exist unless it is new. One that is open already is
// followed anew.
func (s *server) follow(ref subject.Ref, after string, isNew bool) (*session, error) {
	x := &session{
		server: s, ref: ref, over: make(chan struct{}), asks: map[string]*asked{}, prompts: map[string]*prompt{},
	}
	x.life, x.stop = context.WithCancel(s.life)
	x.translator = newTranslator(x)
	feed, err := turn.AttachSession(x.life, s.sys.Backend, s.sys.Principal, ref, after, "acp")
	if err == nil && !isNew {
		err = s.there(ref, feed)
	}
	if err != nil {
		x.stop()
		return nil, err
	}
	x.feed = feed
	s.mu.Lock()
	old := s.sessions[ref.Session]
	if old != nil && old.waits() {
		err = &contract.Error{
			Code: contract.CodeConflict, Field: "sessionId", Message: "a prompt of this session waits for its answer; cancel it first",
		}
	} else {
		s.sessions[ref.Session] = x
	}
	s.mu.Unlock()
	if err != nil {
		x.stop()
		return nil, err
	}
	if old != nil {
		old.end(nil, nil)
		<-old.over
	}
	return x, nil
}

// there returns an error if there is no such session, or it was deleted. One that this client has made exists
// for it before its first message is stored.
func (s *server) there(ref subject.Ref, feed *turn.Session) error {
	none := &contract.Error{Code: contract.CodeNotFound, Field: "sessionId", Message: "agent " + string(ref.Agent) +
		" has no session " + string(ref.Session) + "; session/list lists them"}
	if feed.Attached.Until == "0" {
		if _, err := s.find(string(ref.Session)); err != nil {
			return none
		}
	}
	m, ok := s.sys.Backend.Methods()["getSession"]
	if feed.Attached.State != event.StateLocked || !ok {
		return nil
	}
	q, err := json.Marshal(map[string]string{"agent": string(ref.Agent), "session": string(ref.Session)})
	if err != nil {
		return err
	}
	got, err := m.Call(s.life, s.sys.Principal, q)
	if err != nil {
		return err
	}
	raw, _ := got.(json.RawMessage)
	var info struct {
		State struct {
			Deleted *struct{} `json:"deleted"`
		} `json:"state"`
	}
	if err := json.Unmarshal(raw, &info); err != nil {
		return fmt.Errorf("reading the session's state: %w", err)
	}
	if info.State.Deleted != nil {
		none.Message = "the session " + string(ref.Session) + " was deleted; /undelete in the terminal or on the page may bring it back"
		return none
	}
	return nil
}

// begin begins to send what happens. The past is sent first. After it, opened is called, with the
// lock held.
func (x *session) begin(after string, opened answerer) {
	x.mu.Lock()
	x.until = x.feed.Attached.Until
	if after != "" {
		x.loading = opened
		x.quiet = time.AfterFunc(quietFor, x.caughtUp)
	} else {
		opened(nil, nil)
		for _, q := range x.feed.Attached.Pending {
			x.confirm(&q)
		}
	}
	x.mu.Unlock()
	x.server.work.Go(x.run)
}

// caughtUp ends the loading of a session whose log ends with what is not shown.
func (x *session) caughtUp() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.loaded()
}

// loaded answers session/load once, and asks for what is still pending then.
func (x *session) loaded() {
	answer := x.loading
	if answer == nil {
		return
	}
	x.loading = nil
	x.quiet.Stop()
	answer(nil, nil)
	for _, q := range x.waiting {
		x.confirm(q)
	}
	x.waiting = nil
}

// run handles notifications until the session is closed.
func (x *session) run() {
	defer close(x.over)
	defer x.feed.Close()
	for {
		v, id, err := x.feed.Next(x.life)
		if err == nil {
			x.mu.Lock()
			x.take(v, id)
			x.mu.Unlock()
			continue
		}
		if x.life.Err() != nil || !x.again(err) {
			return
		}
	}
}

// take handles one notification.
func (x *session) take(v any, id string) {
	if x.loading != nil {
		x.quiet.Reset(quietFor)
		if id != "" && later(id, x.until) {
			x.loaded()
		}
	}
	x.translate(v)
	if x.loading != nil && (id == x.until || x.until == "0") {
		x.loaded()
	}
}

// later reports whether an id comes after another one in the log.
func later(id, than string) bool {
	c, i := place(id)
	d, j := place(than)
	return c > d || c == d && i > j
}

func place(id string) (commit, index uint64) {
	left, right, _ := strings.Cut(id, ".")
	commit, _ = strconv.ParseUint(left, 10, 64)
	index, _ = strconv.ParseUint(right, 10, 64) // 0 for a commit's header
	return commit, index
}

// again attaches to a session whose feed has ended, until that succeeds or the log was replaced.
func (x *session) again(err error) bool {
	for {
		e := contract.ErrorOf(err)
		x.server.Log.Warn("the feed of a session ended", "session", x.ref, "error", err)
		if e.Code == contract.CodeInvalid || e.Code == contract.CodeForbidden || e.Code == contract.CodeUnauthenticated {
			x.end(nil, e)
			return false
		}
		select {
		case <-x.life.Done():
			return false
		case <-time.After(retryPause):
		}
		var feed *turn.Session
		if feed, err = turn.AttachSession(x.life, x.server.sys.Backend, x.server.sys.Principal, x.ref, x.feed.After(),
			"acp"); err == nil {
			x.mu.Lock()
			x.feed = feed
			x.mu.Unlock()
			return true
		}
	}
}

// end ends following, and answers the prompts. Turns continue.
func (x *session) end(result any, why error) {
	x.prompting.Lock()
	x.closed = true
	all := x.prompts
	x.prompts = map[string]*prompt{}
	x.prompting.Unlock()
	for _, p := range all {
		p.answer(result, why)
	}
	x.stop()
}

// welcome says about the session what the client could not know.
func (x *session) welcome(q *openRequest) {
	if t := x.feed.Attached.Title; t != "" {
		x.send(update{Kind: sessionInfoSent, Title: t})
	}
	var all []command
	for _, c := range x.server.Commands {
		out := command{Name: c.Name, Description: c.Help}
		if c.Args != "" {
			out.Input = &commandInput{c.Args}
		}
		all = append(all, out)
	}
	if len(all) > 0 {
		x.send(update{Kind: commandsUpdate, Commands: all})
	}
	if names := q.unused(); len(names) > 0 {
		x.notice("These MCP servers of the editor are not used: "+strings.Join(names, ", ")+".",
			"The agent's tools are those of the system, where policy applies to them in every UI.")
	}
}

// notice shows a text that is not part of the conversation.
func (x *session) notice(title, more string) {
	if x.server.notices {
		x.send(update{Kind: notice, Severity: "warning", Title: title, Description: more})
		return
	}
	x.send(update{Kind: agentMessage, MessageID: "notice", Content: textBlock(title + " " + more + "\n\n")})
}

func (x *session) send(u update) { x.server.conn.notify(onUpdate, sessionUpdate{x.ref.Session, u}) }

// find returns a session that the client has open.
func (s *server) find(name string) (*session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if x := s.sessions[subject.Session(name)]; x != nil {
		return x, nil
	}
	return nil, &contract.Error{
		Code: contract.CodeNotFound, Field: "sessionId", Message: "this client has no such session open; use session/new, " +
			"session/load or session/resume first",
	}
}

func (s *server) closeSession(c jsonrpc.Call, answer answerer) {
	var q sessionRequest
	err := decode(c.Params, &q)
	var x *session
	if err == nil {
		x, err = s.find(q.SessionID)
	}
	if err != nil {
		answer(nil, err)
		return
	}
	s.mu.Lock()
	delete(s.sessions, x.ref.Session)
	s.mu.Unlock()
	s.work.Go(func() {
		x.cancelAll()
		x.end(promptResponse{StopReason: cancelled}, nil)
		answer(struct{}{}, nil)
	})
}

// listSessions lists the agent's sessions.
func (s *server) listSessions(c jsonrpc.Call, answer answerer) {
	var q listRequest
	if len(c.Params) > 0 {
		if err := decode(c.Params, &q); err != nil {
			answer(nil, err)
			return
		}
	}
	s.work.Go(func() { answer(s.list(q)) })
}

const pageSize = 50

func (s *server) list(q listRequest) (any, error) {
	m, ok := s.sys.Backend.Methods()["listSessions"]
	if !ok {
		return nil, &contract.Error{Code: contract.CodeUnknownMethod, Message: "sessions cannot be listed here"}
	}
	raw, err := json.Marshal(coreapi.SessionsQuery{Agent: string(s.Agent), Limit: pageSize, After: q.Cursor})
	if err != nil {
		return nil, err
	}
	got, err := m.Call(s.life, s.sys.Principal, raw)
	if err != nil {
		return nil, err
	}
	page, ok := got.(coreapi.SessionsPage)
	if !ok {
		return nil, errors.New("listSessions has another result")
	}
	cwd := s.dir
	if filepath.IsAbs(q.Cwd) {
		cwd = q.Cwd
	}
	out := listResponse{Sessions: []sessionInfo{}, NextCursor: page.Next}
	for _, r := range slices.DeleteFunc(page.Sessions, func(r coreapi.SessionRow) bool { return r.Agent != s.Agent }) {
		out.Sessions = append(out.Sessions, sessionInfo{
			SessionID: r.Session, Cwd: cwd, Title: r.Title, UpdatedAt: r.Updated.UTC().Format(time.RFC3339),
		})
	}
	return out, nil
}
