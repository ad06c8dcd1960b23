// Package attempt is core's side of the messages about attempts: it sends requests to
// executors, reads their answers, asks them to stop, and releases what they no longer need
// to keep.
//
// Produces: requests to executors. Consumes: their answers, under core's reply prefix.
//
// Guarantee: none. A message may be lost, so a session asks again about its attempts. An
// answer that is about anything but the attempt in question is evidence of nothing.
package attempt

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/executor"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/nesting"
)

// Nonce returns a fresh, unguessable id.
func Nonce() string {
	var b [12]byte
	_, _ = rand.Read(b[:]) // never fails, see crypto/rand
	return hex.EncodeToString(b[:])
}

// ID names an attempt, and the executor that has it.
type ID struct {
	Ref           subject.Ref
	Call, Attempt string
	Kind          subject.ExecutorKind
	Instance      subject.Instance
}

func (id ID) subject() string { return subject.Executor(id.Kind, id.Instance) }

// Request returns a request about the attempt that has no other content.
func (id ID) Request(op executor.Op) executor.Request {
	return executor.Request{
		Op: op, Agent: id.Ref.Agent, Session: id.Ref.Session, Call: id.Call, Attempt: id.Attempt,
	}
}

// Encode encodes such a request.
func (id ID) Encode(op executor.Op) []byte { return encode(id.Request(op)) }

func encode(r executor.Request) []byte {
	body, err := json.Marshal(r)
	if err != nil {
		panic(err) // only ids
	}
	return body
}

// Answer is what an executor says about an attempt. Its Call and Attempt are always those
// of the request.
type Answer struct {
	executor.Answer
	Gone bool // nobody received the request; the rest is empty, except for the ids
}

// read reads a reply about the attempt.
func (id ID) read(m bus.Reply) Answer {
	out := Answer{executor.Answer{Call: id.Call, Attempt: id.Attempt, Instance: id.Instance}, m.NoResponders}
	if out.Gone {
		return out
	}
	// When the request or its answer is lost, the executor still knows the attempt, and is
	// asked again.
	out.State = executor.Running
	if m.Err != nil {
		out.Message = m.Err.Error()
		return out
	}
	var a executor.Answer
	err := nesting.Check(m.Data)
	if err == nil {
		err = json.Unmarshal(m.Data, &a)
	}
	switch {
	case err != nil:
		// An executor whose answer is invalid may or may not have run the attempt.
		out.State, out.Message = executor.Unknown, "invalid answer of the executor: "+err.Error()
	case a.Call != out.Call || a.Attempt != out.Attempt || a.Instance != out.Instance:
		out.Message = fmt.Sprintf("the executor answered about attempt %q of %q at %q instead",
			a.Attempt, a.Call, a.Instance)
	default:
		out.Answer = a
	}
	return out
}

// Sender sends the messages of one core. Nothing waits for releases, so they are gathered
// into one message per executor.
type Sender struct {
	ctx    context.Context //nolint:containedctx // what is sent outlives every call
	bus    *journal.Journal
	log    *slog.Logger
	caller *bus.Caller // set by Start

	mu       sync.Mutex
	releases map[string]*executor.Request // by the executor's subject
	wake     chan struct{}
}

const (
	releaseAfter = 50 * time.Millisecond
	releaseAtMax = 256 // attempts in one message
)

// New returns a sender. Nothing is sent once ctx has ended.
func New(ctx context.Context, b *journal.Journal, log *slog.Logger) *Sender {
	return &Sender{ctx: ctx, bus: b, log: log, releases: map[string]*executor.Request{}, wake: make(chan struct{}, 1)}
}

// Send sends a request to the executor of an attempt. It calls f with each answer, until
// cancel is called.
func (s *Sender) Send(ctx context.Context, id ID, body []byte, f func(Answer)) (cancel func(), err error) {
	return s.caller.Send(ctx, id.subject(), string(id.Instance), nil, body, func(m bus.Reply) { f(id.read(m)) })
}

// Stop asks the executor to stop an attempt that is no longer needed.
func (s *Sender) Stop(id ID) {
	if err := s.bus.Publish(s.ctx, id.subject(), nil, id.Encode(executor.OpStop)); err != nil {
		s.log.Debug("stopping an attempt", "executor", id.Instance, "error", err)
	}
}

// Release informs the executor, a little later, that it no longer needs to keep the
// attempt's result.
func (s *Sender) Release(id ID) {
	to := id.subject()
	s.mu.Lock()
	q := s.releases[to]
	if q == nil {
		r := id.Request(executor.OpRelease)
		s.releases[to] = &r
	} else {
		q.Also = append(q.Also, executor.Attempt{Call: id.Call, Attempt: id.Attempt})
	}
	full := q != nil && len(q.Also) >= releaseAtMax
	s.mu.Unlock()
	if full {
		s.flush()
		return
	}
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Start begins to send. stop sends the releases that are still gathered.
func (s *Sender) Start(caller *bus.Caller) (stop func()) {
	s.caller = caller
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-quit:
				s.flush()
				return
			case <-s.wake:
				select {
				case <-quit:
				case <-time.After(releaseAfter):
				}
				s.flush()
			}
		}
	}()
	return func() { close(quit); <-done }
}

// flush sends the gathered releases. If one is lost, the executor drops the result
// when its retention ends.
func (s *Sender) flush() {
	s.mu.Lock()
	all := s.releases
	s.releases = map[string]*executor.Request{}
	s.mu.Unlock()
	for to, q := range all {
		if err := s.bus.Publish(s.ctx, to, nil, encode(*q)); err != nil {
			s.log.Debug("releasing results", "executor", to, "error", err)
		}
	}
}
