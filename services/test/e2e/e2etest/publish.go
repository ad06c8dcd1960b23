package e2etest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/core/shell"
	"skandha.dev/services/internal/coreapi"
)

// Acked is a cause whose storage was acknowledged to its sender.
type Acked struct {
	Seq     uint64
	Subject string
	Body    string
}

type acked struct {
	mu   sync.Mutex
	list []Acked
}

func (a *acked) add(x Acked) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.list = append(a.list, x)
}

// Acked lists the causes that were acknowledged to senders of this test.
func (s *System) Acked() []Acked {
	s.acked.mu.Lock()
	defer s.acked.mu.Unlock()
	return append([]Acked(nil), s.acked.list...)
}

// published counts, for ids that differ between concurrent publishers.
var published atomic.Int64

// publish stores a cause as a listener does, however often the bus dies meanwhile.
func (s *System) publish(
	ref subject.Ref, kind subject.CauseKind, w subject.Writer, id string, body []byte,
) (uint64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	if id == "" {
		id = fmt.Sprintf("e2e-%d-%d", os.Getpid(), published.Add(1)) // the same in all attempts
	}
	for {
		seq, err := s.Bus.PublishCause(ctx, ref, kind, w, id, body)
		if err == nil {
			s.acked.add(Acked{seq, ref.Cause(kind, w), string(body)})
			return seq, nil
		}
		if ctx.Err() != nil || errors.Is(err, bus.ErrRefused) || errors.Is(err, bus.ErrTooLarge) ||
			errors.Is(err, bus.ErrInvalidArgument) {
			return 0, err
		}
	}
}

// Raw publishes as the plainest client can: a request on the subject, answered
// by JetStream's own acknowledgement. It knows no ids and does not try again.
func (s *System) Raw(subj string, h nats.Header, body []byte) (uint64, error) {
	return s.RawWithin(Patience, subj, h, body)
}

// RawWithin is [System.Raw] while the bus may be away: nothing is reported then, and the
// cause may be stored or not.
func (s *System) RawWithin(d time.Duration, subj string, h nats.Header, body []byte) (uint64, error) {
	m, err := s.Bus.Conn().RequestMsg(&nats.Msg{Subject: subj, Header: h, Data: body}, d)
	if err != nil {
		return 0, err
	}
	var ack struct {
		Stream string `json:"stream"`
		Seq    uint64 `json:"seq"`
		Error  *struct {
			Description string `json:"description"`
		} `json:"error"`
	}
	if err := json.Unmarshal(m.Data, &ack); err != nil {
		return 0, fmt.Errorf("%q is no acknowledgement: %w", m.Data, err)
	}
	if ack.Error != nil {
		return 0, errors.New(ack.Error.Description)
	}
	if ack.Stream != bus.StreamSessions || ack.Seq == 0 {
		return 0, fmt.Errorf("%q acknowledges nothing in the log", m.Data)
	}
	s.acked.add(Acked{ack.Seq, subj, string(body)})
	return ack.Seq, nil
}

// ask asks any core.
func (s *System) ask(verb string, body []byte) ([]byte, error) {
	return s.request(coreapi.ServiceName, verb, body)
}

func (s *System) request(service, verb string, body []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return s.caller.Request(ctx, subject.Service(service, verb), service, body)
}

// Session asks any core for a session as it sees it.
func (s *System) Session(ref subject.Ref) (shell.SessionInfo, error) {
	var info shell.SessionInfo
	body, err := json.Marshal(ref)
	if err != nil {
		return info, err
	}
	b, err := s.ask(coreapi.VerbSession, body)
	if err == nil {
		err = json.Unmarshal(b, &info)
	}
	return info, err
}

// Tools asks any core for the tools and their statistics.
func (s *System) Tools() ([]coreapi.ToolInfo, error) {
	var list []coreapi.ToolInfo
	b, err := s.ask(coreapi.VerbTools, nil)
	if err == nil {
		err = json.Unmarshal(b, &list)
	}
	return list, err
}
