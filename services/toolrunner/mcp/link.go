package mcp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"skandha.dev/services/internal/buildinfo"
	"skandha.dev/services/internal/logburst"
	"skandha.dev/services/internal/secret"
	"skandha.dev/services/internal/text"
)

// The times of a connection.
const (
	connectWithin = 2 * time.Minute  // npx and its like install the server first
	listWithin    = 30 * time.Second // the lists of a server
	recheckAdded  = 2 * time.Second  // the file of servers that were added is read again
	recheck       = time.Minute      // a list is read again, which notices a server that has gone
	relistPause   = 100 * time.Millisecond
	firstPause    = 500 * time.Millisecond
	lastPause     = time.Minute
	steady        = time.Minute      // a connection of that age begins with the first pause again
	keepOffer     = 30 * time.Second // tools are offered for that long without a connection
	waitForLink   = 10 * time.Second // a call waits for that long for a connection
	maxSaid       = 500              // of an error, in bytes
)

// legacy is the last protocol that begins with initialize.
const legacy = "2025-11-25"

// link is the connection to one server, made again when it ends.
type link struct {
	name   string
	server Server
	added  bool // while the system ran
	group  *Group
	end    func() // ends the connection for good
	log    *slog.Logger
	strays *logburst.Log // of what is no message
	wants  func(string) bool

	mu      sync.Mutex
	session *session      // nil without a connection
	changed chan struct{} // closed when session changes
	catalog catalog
	err     error // of the last attempt; nil while connected
	known   secret.Known
}

func newLink(name string, s Server, added bool, g *Group) *link {
	log := g.opt.Logger.With("server", name)
	return &link{
		name: name, server: s, added: added, group: g, log: log, strays: logburst.New(log), wants: g.opt.Wants,
		changed: make(chan struct{}),
	}
}

// run keeps the connection until ctx ends.
func (l *link) run(ctx context.Context) {
	pause, old := firstPause, false
	for ctx.Err() == nil {
		began := time.Now()
		err := l.connect(ctx, old)
		if ctx.Err() != nil {
			return
		}
		// A server may ignore what it does not know instead of refusing it.
		old = errors.Is(err, context.DeadlineExceeded) && !old
		if time.Since(began) > steady {
			pause = firstPause
		}
		l.lost(ctx, err, pause)
		pause = min(2*pause, lastPause)
	}
}

// lost waits for the next attempt. After a while without a connection, nothing is offered any more.
func (l *link) lost(ctx context.Context, err error, pause time.Duration) {
	l.mu.Lock()
	first := l.err == nil
	l.err = err
	l.mu.Unlock()
	if first {
		l.log.Warn("no connection to the MCP server; trying again", "error", l.brief(err))
		time.AfterFunc(keepOffer, l.withdraw)
	}
	select {
	case <-ctx.Done():
	case <-time.After(pause):
	}
}

// withdraw ends the offer if there is still no connection.
func (l *link) withdraw() {
	l.mu.Lock()
	gone := l.session == nil && l.group.ctx.Err() == nil
	if gone {
		l.catalog = catalog{}
	}
	l.mu.Unlock()
	if gone {
		l.group.refresh()
	}
}

// connect makes a connection, and serves it until it ends.
func (l *link) connect(ctx context.Context, old bool) (err error) {
	s := newSession(l)
	t, stop, err := l.dial(s)
	if err != nil {
		return err
	}
	defer func() {
		if said := stop(); said != "" && err != nil {
			err = fmt.Errorf("%w; its last words: %s", err, said)
		}
	}()
	opts := &sdk.ClientSessionOptions{}
	if old {
		opts.ProtocolVersion = legacy
	}
	within, cancel := context.WithTimeout(ctx, connectWithin)
	defer cancel()
	client, err := s.client().Connect(within, t, opts)
	if err != nil {
		return fmt.Errorf("connecting: %w", err)
	}
	s.sdk = client
	var why error
	ended := make(chan struct{})
	go func() {
		why = client.Wait()
		l.drop(s, why)
		close(ended)
	}()
	defer func() {
		l.drop(s, err)
		closed := make(chan struct{})
		go func() { _ = client.Close(); close(closed) }()
		select {
		case <-closed:
		case <-time.After(hangWithin): // until the command has been ended
		}
	}()
	if err = l.serve(ctx, s, ended); err == nil {
		err = errors.New("the connection has ended")
		select {
		case <-ended:
			err = cmp.Or(why, err)
		default: // it was dropped
		}
	}
	return err
}

// serve offers what the server has until the connection ends, and then returns nil.
func (l *link) serve(ctx context.Context, s *session, ended <-chan struct{}) error {
	tick := time.NewTicker(recheck)
	defer tick.Stop()
	for first := true; ; first = false {
		c, err := s.list(ctx)
		if err != nil {
			return fmt.Errorf("listing tools: %w", err)
		}
		l.mu.Lock()
		l.catalog, l.err = c, nil
		l.mu.Unlock()
		if first {
			l.put(s)
			l.log.Info("connected to the MCP server", "tools", len(c.tools), "left_out", len(c.out), "protocol", s.protocol())
		}
		l.group.refresh()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ended:
			return nil
		case <-s.ended:
			return nil
		case <-s.relist:
			select { // a server may change its list without end
			case <-ctx.Done():
			case <-time.After(relistPause):
			}
		case <-tick.C:
		}
	}
}

// put makes the session that which calls use.
func (l *link) put(s *session) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.session = s
	close(l.changed)
	l.changed = make(chan struct{})
}

// drop ends the session for calls: those that wait for an answer, and later ones.
func (l *link) drop(s *session, why error) {
	l.mu.Lock()
	if l.session == s {
		l.session = nil
	}
	l.mu.Unlock()
	s.fail(why)
}

// get returns the session, and waits a while for one.
func (l *link) get(ctx context.Context) (*session, error) {
	ctx, cancel := context.WithTimeout(ctx, waitForLink)
	defer cancel()
	for {
		l.mu.Lock()
		s, changed, err := l.session, l.changed, l.err
		l.mu.Unlock()
		if s != nil {
			return s, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			if err == nil {
				err = errors.New("it is being connected")
			}
			return nil, fmt.Errorf("no connection to the MCP server %s: %s", l.name, l.brief(err))
		}
	}
}

// offered returns what the server offers.
func (l *link) offered() catalog {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.catalog
}

// brief is an error for logs and people, in one line: parts of it may be a server's words.
func brief(err error) string {
	words := oneLine(err.Error())
	if at := webPage.FindStringIndex(words); at != nil {
		words = words[:at[0]] + "a web page (HTML); is the url that of an MCP endpoint?"
	}
	return text.Cut(words, maxSaid)
}

// brief is [brief] without the server's secrets.
func (l *link) brief(err error) string { return brief(errors.New(l.secrets().Hide(err.Error()))) }

// webPage matches where a page begins, which may have been cut.
var webPage = regexp.MustCompile(`(?i)"?<(!doctype\s+html|html|head|body)[\s>]`)

// oneLine is a text of a server in one line.
func oneLine(s string) string { return strings.Join(strings.Fields(plain(s)), " ") }

// us is how the client calls itself.
func us() *sdk.Implementation {
	return &sdk.Implementation{Name: "skandha", Version: buildinfo.String()}
}

// knows sets the secrets that the server is given: what it says is shown without them.
func (l *link) knows(k secret.Known) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.known = k
}

func (l *link) secrets() secret.Known {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.known
}

// dial prepares a connection; stop ends what belongs to it, and returns the last words of a command.
func (l *link) dial(s *session) (t sdk.Transport, stop func() string, err error) {
	if l.server.URL == "" {
		return l.dialStdio(s)
	}
	t, err = l.dialHTTP(s)
	return t, func() string { return "" }, err
}

// quiet is the log of the library, which would repeat words of servers without bounds.
func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }
