package provider

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"time"

	"skandha.dev/pkg/event"
	contract "skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/executor"
	"skandha.dev/services/internal/runes"
)

const (
	// maxPiece bounds the text and the reasoning of one message, in bytes: even
	// escaped, it stays far below a server's limit.
	maxPiece = 32 << 10
	// reasoningPerText bounds a model's reasoning, as a multiple of the text's limit.
	reasoningPerText = 16
)

// stream batches the pieces of one attempt's answer into messages, at most one
// per interval. The first piece is sent at once.
type stream struct {
	every time.Duration
	limit int                  // bytes of text
	send  func(contract.Delta) // called in order; fills in plan and attempt

	mu              sync.Mutex
	text, reasoning strings.Builder // not sent yet
	texts, thoughts int             // bytes in all
	n               int
	last            time.Time   // of the last message
	timer           *time.Timer // set while something is not sent yet
	closed          bool
}

func newStream(every time.Duration, limit int, send func(contract.Delta)) *stream {
	return &stream{every: every, limit: limit, send: send}
}

// add takes a piece and reports whether there may be more.
func (s *stream) add(text, reasoning string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || text == "" && reasoning == "" {
		return true
	}
	s.texts += len(text)
	s.thoughts += len(reasoning)
	if s.texts > s.limit || s.thoughts > reasoningPerText*s.limit {
		return false
	}
	s.text.WriteString(text)
	s.reasoning.WriteString(reasoning)
	if s.timer != nil {
		return true
	}
	if wait := s.every - time.Since(s.last); wait > 0 {
		s.timer = time.AfterFunc(wait, s.tick)
		return true
	}
	s.flush()
	return true
}

func (s *stream) tick() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.timer = nil
	s.flush()
}

// close sends what is left; later pieces are dropped.
func (s *stream) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.timer != nil {
		s.timer.Stop()
	}
	s.flush()
	s.closed = true
}

func (s *stream) flush() {
	text, reasoning := s.text.String(), s.reasoning.String()
	s.text.Reset()
	s.reasoning.Reset()
	for text != "" || reasoning != "" {
		var d contract.Delta
		d.N = s.n
		d.Text, text = runes.Split(text, maxPiece)
		d.Reasoning, reasoning = runes.Split(reasoning, maxPiece)
		s.send(d)
		s.n++
		s.last = time.Now()
	}
}

// delta is the payload of a token delta's event.
type delta contract.Delta

// EventType implements event.Payload.
func (delta) EventType() event.Type { return event.TypeDelta }

// publisher returns a function that sends the deltas of an attempt. Nothing waits for them; one that
// cannot be sent is lost: the committed text replaces them all.
func (s *service) publisher(ctx context.Context, ref subject.Ref, req executor.Request) func(contract.Delta) {
	subj, source := ref.Stream(), "skandha/provider/"+string(s.bus.Instance())
	turn := req.Call
	if i := strings.LastIndex(turn, "-p"); i >= 0 {
		turn = turn[:i] // a plan's id is <turn>-p<round>
	}
	if req.Silent {
		return func(contract.Delta) {}
	}
	return func(d contract.Delta) {
		d.Plan, d.Attempt = req.Call, req.Attempt
		e := event.New(ref, req.Call+"/"+req.Attempt+"/"+strconv.Itoa(d.N), source, delta(d))
		e.Turn = turn
		if err := s.bus.PublishLive(ctx, ref, subj, nil, e.AppendJSON(nil)); err != nil {
			s.log.Debug("a delta was lost", "plan", req.Call, "n", d.N, "error", err)
		}
	}
}
