package mcp

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"skandha.dev/services/internal/secret"
	"skandha.dev/services/internal/text"
)

const (
	maxProgress = 200 // of a report, in bytes
	maxAsked    = 8   // questions of a call that are kept
)

// session is one connection to a server.
type session struct {
	link   *link
	sdk    *sdk.ClientSession
	relist chan struct{} // has one while the server's lists have changed
	ended  chan struct{}
	once   sync.Once // closes it
	why    error     // why it has ended; set before

	last  atomic.Int64
	mu    sync.Mutex
	calls map[string]*running // by progress token

	bad         []string // entries of the list that is being read which are no tools
	bads        int      // how many there are
	skipped     int      // lines of standard output that are no messages
	lastSkipped string
}

// running is a call that waits for its result.
type running struct {
	progress func(string)
	known    secret.Known

	mu    sync.Mutex
	asked []string // what the server has asked for in the middle of it
}

func newSession(l *link) *session {
	return &session{link: l, relist: make(chan struct{}, 1), ended: make(chan struct{}), calls: map[string]*running{}}
}

// client returns the client that makes the connection. It offers no roots, no sampling and no
// logging.
func (s *session) client() *sdk.Client {
	return sdk.NewClient(us(), &sdk.ClientOptions{
		Logger:             quiet(),
		Capabilities:       &sdk.ClientCapabilities{},
		ElicitationHandler: s.decline,
		ToolListChangedHandler: func(context.Context, *sdk.ToolListChangedRequest) {
			select {
			case s.relist <- struct{}{}:
			default:
			}
		},
		ProgressNotificationHandler: s.report,
	})
}

// fail ends the session for calls.
func (s *session) fail(why error) {
	s.once.Do(func() {
		s.why = why
		close(s.ended)
	})
}

func (s *session) protocol() string {
	if r := s.sdk.InitializeResult(); r != nil {
		return text.Cut(oneLine(r.ProtocolVersion), maxNameShown)
	}
	return ""
}

// implementation is what the server calls itself.
func (s *session) implementation() string {
	if r := s.sdk.InitializeResult(); r != nil && r.ServerInfo != nil {
		return text.Cut(oneLine(r.ServerInfo.Name+" "+r.ServerInfo.Version), maxNameShown)
	}
	return ""
}

// list reads what the server offers. A server without tools is asked for them, too: an error of the
// protocol shows that it is alive.
func (s *session) list(ctx context.Context) (catalog, error) {
	c, err := s.tools(ctx)
	r := s.sdk.InitializeResult()
	if r == nil || r.Capabilities == nil {
		return c, err
	}
	c.has = capabilities{r.Capabilities.Resources != nil, r.Capabilities.Prompts != nil}
	if r.Capabilities.Tools == nil && s.link.answered(err) != nil {
		err = nil
	}
	return c, err
}

func (s *session) tools(ctx context.Context) (catalog, error) {
	ctx, cancel := context.WithTimeout(ctx, listWithin)
	defer cancel()
	var all []*sdk.Tool
	s.takeMalformed()
	offer := func(more bool) catalog {
		c := s.link.read(all, more)
		c.out = append(s.takeMalformed(), c.out...)
		return c
	}
	params := &sdk.ListToolsParams{}
	for range maxPages {
		page, err := request(ctx, s, func(ctx context.Context) (*sdk.ListToolsResult, error) { return s.sdk.ListTools(ctx, params) })
		if err != nil {
			return catalog{}, err
		}
		all = append(all, page.Tools...)
		if page.NextCursor == "" {
			return offer(false), nil
		}
		if len(all) > maxListed {
			break
		}
		params = &sdk.ListToolsParams{Cursor: page.NextCursor}
	}
	return offer(true), nil
}

// maxListed is how many tools of a server are looked at, of which it may have disabled most.
const maxListed = 2048

// enter registers a call under a new progress token.
func (s *session) enter(r *running) (token string, leave func()) {
	token = strconv.FormatInt(s.last.Add(1), 10)
	s.mu.Lock()
	s.calls[token] = r
	s.mu.Unlock()
	return token, func() {
		s.mu.Lock()
		delete(s.calls, token)
		s.mu.Unlock()
	}
}

// report hands on the progress of a call.
func (s *session) report(_ context.Context, req *sdk.ProgressNotificationClientRequest) {
	token, _ := req.Params.ProgressToken.(string)
	s.mu.Lock()
	r := s.calls[token]
	s.mu.Unlock()
	if r == nil || r.progress == nil {
		return
	}
	words := text.Cut(plain(req.Params.Message), maxProgress)
	if words == "" {
		words = strconv.FormatFloat(req.Params.Progress, 'g', 6, 64)
		if req.Params.Total > 0 {
			words += " of " + strconv.FormatFloat(req.Params.Total, 'g', 6, 64)
		}
	}
	r.progress(r.known.Hide(words))
}

// decline answers a question of the server in the middle of a call: nobody can be asked there. The
// question is part of the call's result. A connection does not say which of several calls it belongs to.
func (s *session) decline(_ context.Context, req *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
	words := text.Cut(plain(req.Params.Message), maxHint)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.calls {
		r.mu.Lock()
		if len(r.asked) < maxAsked {
			r.asked = append(r.asked, r.known.Hide(words))
		}
		r.mu.Unlock()
	}
	return &sdk.ElicitResult{Action: "decline"}, nil
}

func (r *running) questions() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.asked...)
}
