package schedules

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"skandha.dev/pkg/bus"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/submit"
)

const (
	keyPrefix = "hook_"
	maxBody   = 64 << 10 // bytes of a call
	// The calls of one webhook that a core accepts: at most callBurst at once, and then one in each callPause.
	callBurst = 30
	callPause = 2 * time.Second
)

// newKey returns what the callers of a webhook show.
func newKey() string {
	var b [24]byte
	_, _ = rand.Read(b[:]) // never fails, see crypto/rand
	return keyPrefix + base64.RawURLEncoding.EncodeToString(b[:])
}

// Occur stores the call of a webhook as an input. It returns once the log has acknowledged that.
func (s *Schedules) Occur(ctx context.Context, q coreapi.Occurrence) (coreapi.Occurred, error) {
	none := coreapi.Occurred{}
	if err := s.await(ctx); err != nil {
		return none, bus.Errorf(bus.CodeUnavailable, "%v", err)
	}
	found := s.list(func(r *record) bool { return r.plan.hook && r.Made == q.Hook })
	if len(found) == 0 {
		return none, bus.Errorf(bus.CodeNotFound, "there is no such webhook; it may be over or deleted")
	}
	r, err := s.called(found[0], q)
	if err != nil {
		return none, err
	}
	// One call at a time, so that the number of calls is right.
	s.calls.Lock()
	defer s.calls.Unlock()
	if r, err = s.load(ctx, r.key()); err != nil {
		return none, bus.Errorf(bus.CodeUnavailable, "%v", err)
	}
	now := s.cfg.Now().UTC()
	if r == nil || r.Made != q.Hook || r.over() || !r.plan.until.IsZero() && now.After(r.plan.until) {
		return none, bus.Errorf(bus.CodeNotFound, "the webhook is over or deleted")
	}
	if s.isDeleted(ctx, r.Ref) {
		return none, bus.Errorf(bus.CodeNotFound, "the session of the webhook is deleted")
	}
	seq, err := s.emit(ctx, r, r.Name+"/"+r.Made+"/"+callID(q.ID), dataOf(q.Body), now)
	if err != nil {
		return none, refusal(err)
	}
	r.Occurred, r.Last = r.Occurred+1, now
	if err := s.finish(ctx, r, r.plan.until); err != nil {
		s.cfg.Log.Info("the call of a webhook is not counted", "session", r.Ref, "name", r.Name, "error", err)
	}
	return coreapi.Occurred{Sequence: seq}, nil
}

// called reports whether a call may be made.
func (s *Schedules) called(r *record, q coreapi.Occurrence) (*record, error) {
	switch {
	case !r.admits(q):
		return nil, bus.Errorf(bus.CodeDenied, "wrong or missing key; send Authorization: Bearer hook_…, or sign the body with it "+
			"as X-Hub-Signature-256")
	case !s.cfg.Known(r.Agent):
		return nil, bus.Errorf(bus.CodeUnavailable, "agent %s is not configured; send it again once it is", r.Agent)
	case len(q.Body) > maxBody:
		return nil, bus.Errorf(bus.CodeTooLarge, "the body has %d bytes, at most %d", len(q.Body), maxBody)
	case q.Body != "" && !json.Valid([]byte(q.Body)):
		return nil, bus.Errorf(bus.CodeInvalidArgument, "the body is not JSON")
	case !s.allow(r.Made):
		return nil, bus.Errorf(bus.CodeOverloaded, "the webhook is called too often; send it again in %s", callPause)
	}
	return r, nil
}

// admits reports whether the caller has the key.
func (r *record) admits(q coreapi.Occurrence) bool {
	if q.Key != "" {
		return subtle.ConstantTimeCompare([]byte(q.Key), []byte(r.Key)) == 1
	}
	mac := hmac.New(sha256.New, []byte(r.Key))
	mac.Write([]byte(q.Body)) // never fails
	text, _ := strings.CutPrefix(q.Signature, "sha256=")
	sum, err := hex.DecodeString(text)
	return err == nil && hmac.Equal(sum, mac.Sum(nil))
}

// allow reports whether a webhook may be called now.
func (s *Schedules) allow(made string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.rates[made]
	if l == nil {
		l = rate.NewLimiter(rate.Every(callPause), callBurst)
		s.rates[made] = l
	}
	return l.AllowN(s.cfg.Now(), 1)
}

// callID names a call in the id of its input. A call without an id is never the same as another.
func callID(id string) string {
	if id == "" {
		return "call-" + submit.NewID()
	}
	sum := sha256.Sum256([]byte(id))
	return "call-" + hex.EncodeToString(sum[:8])
}

func dataOf(body string) string {
	if strings.TrimSpace(body) == "" {
		return "The webhook was called without a body."
	}
	return body
}

// refusal returns why an input was not stored.
func refusal(err error) error {
	why, fault := submit.Why(err)
	switch {
	case why == submit.Overloaded:
		return bus.Errorf(bus.CodeOverloaded, "too many inputs are waiting; send it again later")
	case fault != nil:
		return bus.Errorf(bus.CodeUnavailable, "%v; send it again with the same id", fault)
	case why == submit.Invalid, why == submit.TooLarge:
		return bus.Errorf(bus.CodeInvalidArgument, "%v", err)
	case errors.Is(err, context.DeadlineExceeded), why == submit.Unknown, why == submit.Unavailable:
		return bus.Errorf(bus.CodeUnavailable, "the bus did not acknowledge it in time; send it again with the same id")
	}
	return err
}
