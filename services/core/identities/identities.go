package identities

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/rights"
	"skandha.dev/services/internal/trust"
)

// Config is what Identities needs.
type Config struct {
	Bus       *journal.Journal
	Authority *trust.Authority
	Keeper    Server
	Log       *slog.Logger
	Now       func() time.Time // default time.Now
}

// Identities is one core's part in keeping them. Its methods may be called concurrently.
type Identities struct {
	cfg    Config
	bucket *journal.Bucket
	filled chan struct{} // closed once all is known that the bucket holds
	wake   chan struct{}

	informing sync.Mutex // held while the server is given an account

	mu       sync.Mutex
	known    map[subject.Identity]*record
	accounts map[string]subject.Identity // by id of the account
	presence presence
	refusals refusals
	taken    func(ctx context.Context, w subject.Writer) string
	muting   map[subject.Identity]bool                        // a change is under way
	noted    func(ctx context.Context, name subject.Identity) // that it was muted
}

// New returns the identities; Start follows them.
func New(cfg Config) *Identities {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Identities{
		cfg: cfg, bucket: cfg.Bus.Bucket(journal.BucketIdentities), filled: make(chan struct{}),
		wake: make(chan struct{}, 1), known: map[subject.Identity]*record{}, accounts: map[string]subject.Identity{},
		presence: presence{at: map[subject.Identity]time.Time{}, open: map[subject.Identity]map[string]bool{}},
		refusals: refusals{latest: map[subject.Identity]coreapi.Refusal{}, said: map[string]*said{}},
		muting:   map[subject.Identity]bool{},
	}
}

// Start works until ctx ends or stop is called.
func (s *Identities) Start(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	watch := s.bucket.Watch(s.take)
	var gone sync.WaitGroup
	gone.Go(func() { s.run(ctx) })
	gone.Go(func() { s.cfg.Keeper.Follow(ctx, s.heard) })
	return func() {
		cancel()
		gone.Wait()
		watch.Stop()
	}
}

func (s *Identities) kick() {
	select {
	case s.wake <- struct{}{}:
	default: // it is awake
	}
}

// take follows the bucket.
func (s *Identities) take(c journal.Change) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.Reset {
		clear(s.known)
	}
	for _, e := range c.Entries {
		s.adopt(e)
	}
	if c.Reset {
		select {
		case <-s.filled:
		default:
			close(s.filled)
		}
	}
	s.kick()
}

// adopt takes over one change of the bucket, unless a later one is known; s.mu is held.
func (s *Identities) adopt(e journal.Entry) {
	name := subject.Identity(e.Key)
	if old := s.known[name]; old != nil && old.revision > e.Revision {
		return
	}
	if e.Deleted {
		delete(s.known, name)
		return
	}
	r, err := decode(e)
	if err != nil {
		s.cfg.Log.Warn("an identity cannot be read and is not admitted", "error", err)
		return
	}
	s.known[name] = r
	if account, err := s.cfg.Authority.PartyID(name, r.Generation); err == nil {
		s.accounts[account] = name
	}
}

// run informs the server of all accounts: at the start, when the server is back, and when a credential ends.
func (s *Identities) run(ctx context.Context) {
	select {
	case <-s.filled:
	case <-ctx.Done():
		return
	}
	known := map[subject.Identity]string{}
	for {
		next, err := s.informAll(ctx, known)
		wait := time.Hour
		if err != nil {
			if ctx.Err() == nil {
				s.cfg.Log.Warn("the server does not know all identities yet; trying again", "error", err)
			}
			wait = retry
		} else if !next.IsZero() {
			wait = max(next.Sub(s.cfg.Now()), 0) + 10*time.Millisecond
		}
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-s.wake:
			settled(ctx)
		case <-s.cfg.Keeper.Back():
			clear(known)
		case <-t.C:
		}
		t.Stop()
	}
}

const retry = time.Second

// settled waits until this core has heard of changes that closely follow the one that woke it. The core that makes a
// change informs the server itself, and the server must not get the state before that from another core afterwards.
func settled(ctx context.Context) {
	t := time.NewTimer(settle)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

const settle = 500 * time.Millisecond

// informAll gives the server the accounts that have changed since it was informed, and returns when the next
// credential ends.
func (s *Identities) informAll(ctx context.Context, known map[subject.Identity]string) (next time.Time, err error) {
	s.mu.Lock()
	all := slices.Collect(maps.Values(s.known))
	s.mu.Unlock()
	now := s.cfg.Now()
	for _, r := range all {
		if at := r.next(now); !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
		state := fmt.Sprintf("%d %v %t", r.revision, r.revoked(now), r.muted(now))
		if known[r.Charter.Name] == state {
			continue
		}
		if err := s.inform(ctx, r); err != nil {
			return next, err
		}
		known[r.Charter.Name] = state
	}
	return next, nil
}

// inform gives the server the account of an identity. What it revokes has ended then. If a later change is known, it
// gives that: the server must not get an older one last.
func (s *Identities) inform(ctx context.Context, r *record) error {
	s.informing.Lock()
	defer s.informing.Unlock()
	s.mu.Lock()
	if last := s.known[r.Charter.Name]; last != nil && last.revision > r.revision {
		r = last
	}
	s.mu.Unlock()
	now, sign := s.cfg.Now(), s.cfg.Authority.PartyAccount
	if r.muted(now) {
		sign = s.cfg.Authority.MutedAccount
	}
	account, err := sign(r.Charter, r.Generation, r.revoked(now))
	if err != nil {
		return err
	}
	if err := s.cfg.Keeper.Update(ctx, account); err != nil {
		return fmt.Errorf("the account of %s: %w", r.Charter.Name, err)
	}
	return nil
}

// Charter returns the charter of an identity that may connect now. The error is [bus.ErrDenied] if there
// is none.
func (s *Identities) Charter(ctx context.Context, name subject.Identity) (rights.Charter, error) {
	s.mu.Lock()
	r := s.known[name]
	s.mu.Unlock()
	if r == nil { // another core may have invited it a moment ago
		var err error
		if r, err = s.read(ctx, name); err != nil && !errors.Is(err, bus.ErrNotFound) {
			return rights.Charter{}, err
		}
	}
	if r == nil {
		return rights.Charter{}, bus.Errorf(bus.CodeDenied, "nobody called %s was invited", name)
	}
	if st := r.state(s.cfg.Now()); st != coreapi.IdentityActive {
		return rights.Charter{}, bus.Errorf(bus.CodeDenied, "the invitation of %s is %s", name, st)
	}
	return r.Charter, nil
}

// Known reports whether somebody was ever invited with the name.
func (s *Identities) Known(name subject.Identity) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known[name] != nil
}

// Listens reports whether a writer is a listener with an invitation, which reads its answers.
func (s *Identities) Listens(w subject.Writer) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.known {
		if r.Revoked.IsZero() && slices.Contains(r.Charter.Listeners, w) {
			return true
		}
	}
	return false
}

func (s *Identities) read(ctx context.Context, name subject.Identity) (*record, error) {
	e, err := s.bucket.Get(ctx, string(name))
	if err != nil {
		return nil, err
	}
	return decode(e)
}

// Do answers a request of service.admin.identities. Errors are *[bus.Error].
func (s *Identities) Do(ctx context.Context, q coreapi.IdentitiesQuery) (coreapi.IdentitiesPage, error) {
	page := coreapi.IdentitiesPage{Rights: true, Identities: []coreapi.Identity{}}
	var err error
	switch q.Op {
	case "":
	case coreapi.IdentityInvite:
		page.Credentials, err = s.invite(ctx, q)
	case coreapi.IdentityRotate:
		page.Credentials, err = s.rotate(ctx, q)
	case coreapi.IdentityRevoke:
		err = s.revoke(ctx, q)
	default:
		err = bus.Errorf(bus.CodeInvalidArgument, "op: %q: want invite, rotate or revoke, or none to list", q.Op)
	}
	if err != nil {
		return coreapi.IdentitiesPage{}, err
	}
	if q.Op == coreapi.IdentityInvite {
		q.Name = q.Charter.Name
	}
	now := s.cfg.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, r := range s.known {
		if q.Name == "" || q.Name == name {
			id := r.public(now)
			id.Connected, id.Seen = s.presence.of(name)
			if no, ok := s.refusals.latest[name]; ok {
				id.Refused = &no
			}
			page.Identities = append(page.Identities, id)
		}
	}
	slices.SortFunc(page.Identities, func(a, b coreapi.Identity) int {
		return cmp.Compare(a.Charter.Name, b.Charter.Name)
	})
	return page, nil
}

func (s *Identities) invite(ctx context.Context, q coreapi.IdentitiesQuery) (*coreapi.Credential, error) {
	if q.Charter == nil {
		return nil, bus.Errorf(bus.CodeInvalidArgument, "charter is missing")
	}
	c := *q.Charter
	if err := c.Validate(); err != nil {
		return nil, bus.Errorf(bus.CodeInvalidArgument, "charter: %s", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	now := s.cfg.Now()
	if !c.Expires.IsZero() && !c.Expires.After(now) {
		return nil, bus.Errorf(bus.CodeInvalidArgument, "charter: expires: %s is over", c.Expires.Format(time.RFC3339))
	}
	for _, l := range c.Listeners {
		if owner := s.owner(ctx, l, q.Caller); owner != "" {
			return nil, bus.Errorf(bus.CodeConflict, "charter: listeners: %s is %s; choose another name", l, owner)
		}
	}
	if err := s.free(c); err != nil {
		return nil, err
	}
	return s.issue(ctx, c.Name, q, func(r *record) (*record, error) {
		switch {
		case r == nil:
			return &record{Charter: c, Generation: 1, Invited: now, By: q.Caller}, nil
		case !r.Revoked.IsZero():
			return &record{Charter: c, Generation: r.Generation + 1, Invited: now, By: q.Caller, revision: r.revision}, nil
		case !q.Replace && r.state(now) == coreapi.IdentityActive:
			return nil, bus.Errorf(bus.CodeConflict, "%s was invited by %s at %s; "+
				"rotate its credentials, revoke it first, or replace its charter", c.Name, r.By, r.Invited.Format(time.RFC3339))
		}
		r.Charter, r.By, r.Invited = c, q.Caller, now
		return r, nil
	})
}

func (s *Identities) rotate(ctx context.Context, q coreapi.IdentitiesQuery) (*coreapi.Credential, error) {
	if q.OverlapS < 0 {
		return nil, bus.Errorf(bus.CodeInvalidArgument, "overlap_s: is %d, want 0 or more", q.OverlapS)
	}
	now := s.cfg.Now()
	return s.issue(ctx, q.Name, q, func(r *record) (*record, error) {
		if r == nil || r.state(now) != coreapi.IdentityActive {
			return nil, bus.Errorf(bus.CodeNotFound, "no active identity %q; invite it", q.Name)
		}
		until := now.Add(time.Duration(q.OverlapS) * time.Second)
		for i, k := range r.Keys {
			if k.Until.IsZero() || k.Until.After(until) {
				r.Keys[i].Until = until
			}
			if q.OverlapS == 0 {
				r.Keys[i].Ended = true
			}
		}
		return r, nil
	})
}

// issue changes an identity and makes credentials for it.
func (s *Identities) issue(
	ctx context.Context, name subject.Identity, q coreapi.IdentitiesQuery, change func(*record) (*record, error),
) (*coreapi.Credential, error) {
	var out trust.Admission
	r, err := s.change(ctx, name, func(r *record) (*record, error) {
		r, err := change(r)
		if err != nil {
			return nil, err
		}
		if out, err = s.cfg.Authority.Admit(r.Charter, r.Generation, q.Bearer); err != nil {
			return nil, err
		}
		now := s.cfg.Now()
		r.Keys = append(r.Keys, key{User: out.User, Issued: now})
		for i := range len(r.Keys) - maxKeys {
			if k := &r.Keys[i]; k.Until.IsZero() || k.Until.After(now) {
				k.Until, k.Ended = now, true
			}
		}
		return r, nil
	})
	if err != nil {
		return nil, err
	}
	if err := s.inform(ctx, r); err != nil {
		return nil, fmt.Errorf("%s is invited, but cannot connect yet; repeat it: %w", name, err)
	}
	s.cfg.Log.Info("credentials issued", "identity", name, "op", q.Op, "by", q.Caller)
	if q.Bearer {
		return &coreapi.Credential{Token: out.JWT}, nil
	}
	creds, err := out.Creds()
	return &coreapi.Credential{Creds: string(creds)}, err
}

func (s *Identities) revoke(ctx context.Context, q coreapi.IdentitiesQuery) error {
	r, err := s.change(ctx, q.Name, func(r *record) (*record, error) {
		if r == nil {
			return nil, bus.Errorf(bus.CodeNotFound, "no identity %q", q.Name)
		}
		if r.Revoked.IsZero() {
			r.Revoked = s.cfg.Now()
		}
		return r, nil
	})
	if err != nil {
		return err
	}
	if err := s.inform(ctx, r); err != nil {
		return fmt.Errorf("%s is revoked, but its connections may still be open; repeat it: %w", q.Name, err)
	}
	s.cfg.Log.Info("identity revoked", "identity", q.Name, "by", q.Caller)
	return nil
}

// changes is how often a change is tried that others outrun.
const changes = 5

// change stores a changed record; f gets nil if there is none.
func (s *Identities) change(ctx context.Context, name subject.Identity, f func(*record) (*record, error)) (*record, error) {
	if !subject.Valid(name) {
		return nil, bus.Errorf(bus.CodeInvalidArgument, "name: %q is not a valid id", string(name))
	}
	for try := 1; ; try++ {
		r, err := s.read(ctx, name)
		if err != nil && !errors.Is(err, bus.ErrNotFound) {
			return nil, err
		}
		revision := uint64(0)
		if r != nil {
			revision = r.revision
		} else if revision, err = s.lastRevision(ctx, name); err != nil {
			return nil, err
		}
		if r, err = f(r); err != nil {
			return nil, err
		}
		body, err := json.Marshal(r)
		if err != nil {
			return nil, err
		}
		if r.revision, err = s.bucket.Put(ctx, string(name), body, journal.Fence{Revision: revision}); err == nil {
			s.mu.Lock()
			s.adopt(journal.Entry{Key: string(name), Revision: r.revision, Value: body})
			s.mu.Unlock()
			return r, nil
		}
		if !errors.Is(err, bus.ErrFenceLost) || try == changes {
			return nil, fmt.Errorf("storing the identity %s: %w", name, err)
		}
	}
}

// lastRevision is that of a key that was deleted; 0 if it never existed.
func (s *Identities) lastRevision(ctx context.Context, name subject.Identity) (uint64, error) {
	for e, err := range s.bucket.Matching(ctx, string(name)) {
		return e.Revision, err
	}
	return 0, nil
}
