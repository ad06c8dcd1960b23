package bus

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"

	"github.com/nats-io/nats.go"

	"skandha.dev/pkg/subject"
)

// VerbStop is the verb on which a service takes a [Stop], on service.<name>.stop.
const VerbStop = "stop"

// Stop says that a caller has given up a request, of any verb of the service. Every process of the
// service receives it; the one that has the request ends its context. There is no answer. The schema
// is schemas/service/provider/stop.json.
type Stop struct {
	Reply string `json:"reply"` // the request's reply subject, which only its caller and responder know
}

// earlyStops is how many stops are kept for requests that may arrive after them.
const earlyStops = 256

// stops ends the contexts of requests whose callers have given up.
type stops struct {
	sub *nats.Subscription

	mu    sync.Mutex
	open  map[string]context.CancelCauseFunc // by reply subject
	early []string                           // of requests that have not arrived, perhaps elsewhere
}

// errGivenUp is the cause of the end of a request's context.
var errGivenUp = Errorf(CodeCancelled, "the caller gave up")

// subscribe takes stops for the responder.
func (s *stops) subscribe(b *Bus, self string) (err error) {
	s.open = map[string]context.CancelCauseFunc{}
	s.sub, err = b.Subscribe(subject.Service(self, VerbStop), "", func(m *nats.Msg) {
		var stop Stop
		if json.Unmarshal(m.Data, &stop) == nil && subject.IsReplyFrom(stop.Reply, self) {
			s.end(stop.Reply)
		}
	})
	return err
}

func (s *stops) end(reply string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if cancel := s.open[reply]; cancel != nil {
		cancel(errGivenUp)
		return
	}
	if s.early = append(s.early, reply); len(s.early) > earlyStops {
		s.early = s.early[1:]
	}
}

// watch ends a request's context when its caller gives up, or has already; forget must be called.
func (s *stops) watch(ctx context.Context, reply string) (_ context.Context, forget func()) {
	if s == nil || reply == "" {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.early, reply); i >= 0 {
		s.early = slices.Delete(s.early, i, i+1)
		cancel(errGivenUp)
	}
	s.open[reply] = cancel
	return ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.open, reply)
		cancel(nil)
	}
}

func (s *stops) close() {
	if s != nil {
		_ = s.sub.Unsubscribe()
	}
}

// RequestOrStop is like [Caller.Request], for responders that are [Stoppable]: if ctx is cancelled
// before there is a reply, the responder is asked to abandon the request. The responder's name must be
// that of its service.
func (c *Caller) RequestOrStop(ctx context.Context, subj, responder string, body []byte) ([]byte, error) {
	return c.request(ctx, subj, responder, body, func(reply string) {
		stop, err := json.Marshal(Stop{reply})
		if err == nil {
			err = c.b.Publish(context.WithoutCancel(ctx), subject.Service(responder, VerbStop), nil, stop)
		}
		if err != nil && !errors.Is(err, nats.ErrConnectionClosed) {
			c.b.log.Debug("could not stop a request", "subject", subj, "error", err)
		}
	})
}
