package hub

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/follow"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/uibridge/contract"
)

// session is shared by all feeds of a session: the follower, and its recent notifications.
type session struct {
	hub     *Hub
	ref     subject.Ref
	log     *slog.Logger
	cancel  context.CancelFunc
	ready   chan struct{} // closed when following has begun or failed
	failed  error         // set before ready is closed
	commits atomic.Int32  // feeds that want onCommit
	html    atomic.Int32  // feeds that want HTML
	paint   painter

	// Owned by the hub, under its lock.
	attached int
	idle     *time.Timer

	mu     sync.Mutex
	feeds  map[*feed]struct{} // live ones
	at     place              // place of the last item
	ring   []*notification    // recent notifications that have a place
	bytes  int
	oldest place  // the ring has everything after this place
	whole  uint64 // the last commit with onCommit
	bare   uint64 // the last commit without
	lost   bool   // the log no longer contains at
}

// startWait limits the time in which following must begin.
const startWait = 5 * time.Second

// run follows the session until ctx ends.
func (s *session) run(ctx context.Context) {
	items, err := s.follow(ctx)
	s.failed = err
	close(s.ready)
	if err != nil {
		s.hub.forget(s)
		return
	}
	for range items { // receive handles each item
	}
	if ctx.Err() == nil {
		s.endLost()
	}
}

// endLost ends all feeds because the log no longer contains what was sent to them. Clients
// that attach from now on get a new session object.
func (s *session) endLost() {
	s.log.Warn(
		"the log was replaced or cut; ending the session's feeds", "session", s.ref, "commit", s.position().commit)
	s.hub.forget(s)
	s.mu.Lock()
	s.lost = true
	feeds := slices.Collect(maps.Keys(s.feeds))
	s.mu.Unlock()
	for _, f := range feeds {
		f.end(s.lostPlace(f.lastSeen()))
	}
}

// lostPlace returns the error for a feed if the log no longer contains what was sent.
func (s *session) lostPlace(seen string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.lost {
		return nil
	}
	return contract.LostPlace(fmt.Sprintf(
		`the log was replaced or cut and no longer contains the id %q; attach again after "0"`, seen))
}

func (s *session) follow(ctx context.Context) (<-chan follow.Item, error) {
	wait, cancel := context.WithTimeout(ctx, startWait)
	defer cancel()
	at, id, err := s.last(wait)
	if err != nil {
		return nil, err
	}
	s.at, s.oldest, s.bare = at, at, at.commit
	items, err := follow.With(ctx, s.bus(), s.ref, follow.Position{Commit: at.commit, Index: follow.All}, follow.Options{
		Log: s.log, Commits: func() bool { return s.commits.Load() > 0 }, Each: s.receive, Check: true, LastID: id,
	})
	return items, err
}

func (s *session) bus() *journal.Journal { return s.hub.deps.Client.Journal }

// end returns the place of the session's last event.
func (s *session) end(ctx context.Context) (place, error) {
	at, _, err := s.last(ctx)
	return at, err
}

// last returns the place and the id of the session's last event.
func (s *session) last(ctx context.Context) (at place, id string, err error) {
	m, err := s.bus().LastCommit(ctx, s.ref)
	if errors.Is(err, bus.ErrNotFound) {
		return place{0, follow.All}, "", nil
	}
	if err != nil {
		return place{}, "", fmt.Errorf("looking for the end of %s: %w", s.ref, err)
	}
	at, id = lastOf(s.ref, m)
	return at, id, nil
}

// lastOf returns the place and the id of the last event of a message on the session's
// commit subject, or the place of the commit itself if it has no events or cannot be read.
func lastOf(ref subject.Ref, m bus.StoredMsg) (at place, id string) {
	c, err := event.DecodeCommit(ref, m.Data)
	if err != nil || len(c.Events) == 0 {
		return place{m.Seq, header}, ""
	}
	i := len(c.Events) - 1
	return place{m.Seq, i}, c.Events[i].ID
}

// receive handles an item from the follower.
func (s *session) receive(i follow.Item) {
	if i.Delta != nil || i.Output != nil || i.Commit == 0 {
		s.receiveLossy(i)
		return
	}
	t, err := newNotification(s.ref, i, s.hub.render())
	if err != nil {
		s.log.Warn(
			"making a notification of an event failed",
			"session", s.ref, "commit", i.Commit, "index", i.Index, "error", err)
	}
	s.paint.replaced(i)
	s.mu.Lock()
	s.at = placeOf(i)
	if i.Whole != nil {
		s.whole = i.Commit
	} else if i.Commit != s.whole {
		s.bare = i.Commit
	}
	var ended []*feed
	if t != nil {
		t.bare = i.Commit == s.bare
		s.keep(t)
		ended = s.offer(t, everybody)
	}
	s.mu.Unlock()
	s.hub.release(ended...)
}

// receiveLossy passes on a delta or output. Feeds that want HTML get deltas from the painter.
func (s *session) receiveLossy(i follow.Item) {
	if i.Delta != nil && !s.paint.add(s, i) {
		return
	}
	to := everybody
	if i.Delta != nil && s.hub.deps.Markdown != nil {
		to = withoutHTML
	}
	t, err := newNotification(s.ref, i, nil)
	if err != nil {
		s.log.Warn("encoding a delta failed", "session", s.ref, "error", err)
		return
	}
	s.mu.Lock()
	ended := s.offer(t, to)
	s.mu.Unlock()
	s.hub.release(ended...)
}

// The receivers of a notification.
func everybody(*feed) bool     { return true }
func withoutHTML(f *feed) bool { return !f.html }
func withHTML(f *feed) bool    { return f.html }

// offer queues t for the feeds that it is for. The caller holds the lock, and must release
// the returned feeds, which did not keep up.
func (s *session) offer(t *notification, to func(*feed) bool) (ended []*feed) {
	for f := range s.feeds {
		if to(f) && !f.offer(t) {
			delete(s.feeds, f)
			ended = append(ended, f)
		}
	}
	return ended
}

// keep stores t for feeds that reconnect.
func (s *session) keep(t *notification) {
	s.ring = append(s.ring, t)
	s.bytes += t.size()
	drop := 0
	for len(s.ring)-drop > s.hub.cfg.Ring || s.bytes > s.hub.cfg.RingBytes && len(s.ring)-drop > 1 {
		s.bytes -= s.ring[drop].size()
		s.oldest = s.ring[drop].at
		s.ring[drop] = nil
		drop++
	}
	s.ring = s.ring[drop:]
}

func (s *session) position() place {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.at
}

// join makes a feed live if memory has everything that follows what the feed was sent.
func (s *session) join(f *feed) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.err != nil, f.live:
		return true // take returns the error
	case f.tail.before(s.oldest), f.commits && f.tail.commit < s.bare:
		return false
	}
	for _, t := range s.ring {
		if f.tail.before(t.at) && (f.commits || !t.whole) {
			f.tail = t.at
			f.put(t)
		}
	}
	f.live = true
	if f.html {
		s.paint.repaint()
	}
	return true
}

// The bounds of a page of the log.
const (
	pageNotifications = 1024
	pageBytes         = 1 << 20
)

// page reads from the log what follows a place: everything, if end is true, or as much as
// fits in a page. The returned list is valid even if there is an error.
func (s *session) page(ctx context.Context, tail place, commits bool) (
	list []*notification, at place, end bool, err error,
) {
	at = tail
	after := tail.commit
	if tail.index < follow.All && after > 0 {
		after-- // some of that commit may not have been sent
	}
	bytes := 0
	for m, err := range s.bus().Commits(ctx, s.ref, after) {
		if err != nil {
			return list, at, false, err
		}
		for _, t := range s.notificationsOf(m, commits) {
			if tail.before(t.at) {
				list = append(list, t)
				bytes += t.size()
			}
		}
		at = place{m.Seq, follow.All}
		if len(list) >= pageNotifications || bytes >= pageBytes {
			return list, at, false, nil
		}
	}
	return list, at, true, nil
}

// notificationsOf returns the notifications of a stored commit; none if it cannot be read.
func (s *session) notificationsOf(m bus.StoredMsg, commits bool) (list []*notification) {
	c, err := event.DecodeCommit(s.ref, m.Data)
	if err != nil {
		s.log.Warn("decoding a commit failed", "session", s.ref, "commit", m.Seq, "error", err)
		return nil
	}
	items := make([]follow.Item, 0, len(c.Events)+1)
	if commits {
		items = append(items, follow.Item{Commit: m.Seq, Index: header, Whole: &c})
	}
	for i, e := range c.Events {
		items = append(items, follow.Item{Commit: m.Seq, Index: i, Event: e})
	}
	for _, i := range items {
		t, err := newNotification(s.ref, i, s.hub.render())
		if err != nil {
			s.log.Warn(
				"making a notification of an event failed",
				"session", s.ref, "commit", i.Commit, "index", i.Index, "error", err)
		}
		if t != nil {
			list = append(list, t)
		}
	}
	return list
}
