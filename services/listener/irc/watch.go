package irc

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/periodic"
)

const (
	// syncWait is for the server to answer the watcher before a delivery, which otherwise is not
	// watched.
	syncWait = 3 * time.Second
	// goneWait is for the server to notice that the connection is lost.
	goneWait = 5 * time.Second
)

// watcher is a second connection of the gateway, which is in its channels and sees what arrives
// there. See the package's documentation for what that proves.
type watcher struct {
	*conn
	sender string // the nickname of the gateway, folded

	mu      sync.Mutex
	with    map[string]bool   // the channels in which it has seen the gateway: whether that is there now
	waiting map[string]*track // by the token of the PING after which they begin
	tracks  map[*track]bool   // that have begun
}

// track is what the watcher has seen of the lines of one delivery.
type track struct {
	watcher *watcher
	room    string
	lines   []string
	begun   chan struct{} // closed when the server has answered: from here on, nothing is missed
	settled chan struct{} // closed when nothing more can be seen

	// guarded by the watcher's mu
	on   bool // it has begun in a channel in which both are
	seen int  // of the lines, in their order
	odd  bool // the gateway has said something else
	gone bool // the server has ended the connection that sends: nothing more arrives
}

// watch serves the watcher's connection until it ends.
func (g *Gateway) watch(ctx context.Context) error {
	cfg := g.cfg
	cfg.Nick = cfg.Nick[:min(len(cfg.Nick), 8)] + "_" // RFC 2812 allows nine characters
	c, err := dial(ctx, cfg, g.secrets)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer stop()
	w := &watcher{
		conn: c, sender: fold(g.cfg.Nick), with: map[string]bool{}, waiting: map[string]*track{}, tracks: map[*track]bool{},
	}
	g.watcher.Store(w)
	defer w.end()
	defer g.watcher.Store(nil)
	join := func() {
		_ = c.write("PING :keep") // a failure ends the connection
		for room := range g.cfg.Rooms {
			if !c.in(room) {
				g.join(c, room)
			}
		}
	}
	join()
	go periodic.Every(ctx, g.cfg.Ping, join)
	for {
		_ = c.SetReadDeadline(time.Now().Add(3 * g.cfg.Ping)) // of a closed connection the read fails
		m, err := c.read()
		if err != nil {
			return err
		}
		if m.command == "ERROR" {
			return errors.New("the server ended the connection: " + reason(m))
		}
		w.handle(m)
	}
}

// track begins to watch for the lines of a delivery. It returns nil if that would prove nothing, and
// an error if the gateway's connection has ended, or may have.
func (g *Gateway) track(ctx context.Context, c *conn, to string, lines []string) (*track, error) {
	w := g.watcher.Load()
	// The watcher sees in order what its own server relays. While the gateway has another nickname
	// it may change it at any time.
	if w == nil || !channelName.MatchString(to) || w.server != c.server || fold(c.name()) != w.sender {
		return nil, nil //nolint:nilnil // nothing watches
	}
	t := &track{watcher: w, room: to, begun: make(chan struct{}), settled: make(chan struct{})}
	for _, l := range lines {
		t.lines = append(t.lines, oneLine.Replace(l))
	}
	token := rand.Text()
	w.mu.Lock()
	w.waiting[token] = t
	w.mu.Unlock()
	defer w.unexpect(token)
	if err := w.write("PING :%s", token); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, syncWait)
	defer cancel()
	select {
	case <-t.begun:
	case <-t.settled:
		return nil, errors.New("the connection that watches was lost")
	case <-ctx.Done():
		return nil, errors.New("the server does not answer the connection that watches")
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch there, met := w.with[to]; {
	case t.on:
		return t, nil
	case w.in(to) && met && !there:
		return nil, fmt.Errorf("the server has ended the connection, or removed it from %s", to)
	}
	return nil, nil //nolint:nilnil // nothing watches
}

func (w *watcher) unexpect(token string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.waiting, token)
}

// forget ends a track whose delivery did not begin, or has an outcome.
func (t *track) forget() {
	if t == nil {
		return
	}
	t.watcher.mu.Lock()
	defer t.watcher.mu.Unlock()
	t.settle()
}

// settle ends a track, with the watcher's mu held.
func (t *track) settle() {
	if t.watcher.tracks[t] {
		delete(t.watcher.tracks, t)
		close(t.settled)
	}
}

// result is what the track proves about a delivery whose connection is lost.
func (t *track) result(ctx context.Context) tool.Result {
	const lost = "the connection was lost before the server had confirmed the lines"
	if t == nil {
		return tool.Failure(tool.CodeOutcomeUnknown, lost)
	}
	ctx, cancel := context.WithTimeout(ctx, goneWait)
	defer cancel()
	select {
	case <-t.settled:
	case <-ctx.Done():
	}
	t.watcher.mu.Lock()
	defer t.watcher.mu.Unlock()
	switch {
	case t.seen == len(t.lines):
		return tool.OK(map[string]any{"to": t.room, "lines": t.seen})
	case t.gone && t.seen == 0 && !t.odd:
		return tool.Failure(tool.CodeNotRun, lost+", and none of them has arrived")
	}
	return tool.Failure(tool.CodeOutcomeUnknown,
		fmt.Sprintf("%s; %d of %d are known to have arrived", lost, t.seen, len(t.lines)))
}

// end ends all tracks: what arrives from here on is not seen.
func (w *watcher) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for t := range w.tracks {
		t.settle()
	}
	for _, t := range w.waiting {
		close(t.settled)
	}
	clear(w.waiting)
}

// handle handles a line of the server.
func (w *watcher) handle(m message) {
	w.mu.Lock()
	defer w.mu.Unlock()
	who, at := fold(m.nick()), fold(m.param(0))
	switch m.command {
	case "PING":
		_ = w.write("PONG :%s", m.param(0)) // a failure ends the connection
	case "PONG":
		w.begin(m.param(1))
	case "PRIVMSG":
		w.saw(who, at, m.param(1))
	case "JOIN":
		w.joins(who, at)
	case "PART":
		w.leaves(who, at)
	case "KICK":
		w.leaves(fold(m.param(1)), at)
	case "QUIT":
		if who == w.sender {
			w.quits()
		}
	case "NICK":
		w.renames(who, m.param(0))
	case "353": // the names in a channel: nick, kind, channel, names
		for name := range strings.FieldsSeq(fold(m.param(3))) {
			if room := fold(m.param(2)); strings.TrimLeft(name, "~&@%+") == w.sender && w.in(room) {
				w.with[room] = true
			}
		}
	}
}

// begin begins the track of a PING. Everything that the server has relayed before was read.
func (w *watcher) begin(token string) {
	t := w.waiting[token]
	if t == nil {
		return
	}
	delete(w.waiting, token)
	if t.on = w.in(t.room) && w.with[t.room]; t.on {
		w.tracks[t] = true
	}
	close(t.begun)
}

// saw notes what the gateway said.
func (w *watcher) saw(who, room, text string) {
	if who != w.sender {
		return
	}
	for t := range w.tracks {
		switch {
		case t.room != room:
		case t.seen < len(t.lines) && t.lines[t.seen] == text && !t.odd:
			if t.seen++; t.seen == len(t.lines) {
				t.settle()
			}
		default:
			t.odd = true
		}
	}
}

func (w *watcher) joins(who, room string) {
	switch who {
	case fold(w.name()):
		w.setIn(room, true)
		delete(w.with, room) // until its names come
	case w.sender:
		w.with[room] = true
	}
}

// leaves ends the tracks in a channel that one of the two has left: what arrives is not seen, or it
// is not seen when the gateway's connection ends.
func (w *watcher) leaves(who, room string) {
	switch who {
	case fold(w.name()):
		w.setIn(room, false)
		delete(w.with, room)
	case w.sender:
		w.with[room] = false
	default:
		return
	}
	for t := range w.tracks {
		if t.room == room {
			t.settle()
		}
	}
}

// alone notes that the gateway is in no channel.
func (w *watcher) alone() {
	for room := range w.with {
		w.with[room] = false
	}
}

// quits notes that the server has ended the gateway's connection.
func (w *watcher) quits() {
	w.alone()
	for t := range w.tracks {
		t.gone = true
		t.settle()
	}
}

// renames follows the nicknames. That of the gateway does not change while it has the one of its
// configuration, unless the server changes it: then its lines are not recognized any more.
func (w *watcher) renames(who, to string) {
	switch {
	case who == fold(w.name()):
		w.conn.mu.Lock()
		w.nick = to
		w.conn.mu.Unlock()
	case who == w.sender:
		w.alone()
		for t := range w.tracks {
			t.settle()
		}
	case fold(to) == w.sender:
		clear(w.with) // until the names come
		for _, room := range w.rooms() {
			_ = w.write("NAMES %s", room) // a failure ends the connection
		}
	}
}
