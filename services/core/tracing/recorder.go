package tracing

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/trace"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/telemetry"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/signals"
	"skandha.dev/services/internal/timeline"
	"skandha.dev/services/internal/turn"
)

const (
	maxRoots    = 16384 // turns whose trace is remembered
	maxSessions = 2048  // sessions whose commits are remembered until their turns end
	maxCommits  = 256   // of a session; those of a longer turn are read from the log
	maxBytes    = 1 << 20
	maxJobs     = 256 // turns whose spans wait
	readWait    = 5 * time.Second
)

// Recorder makes the traces of one core. Its methods may be called concurrently.
type Recorder struct {
	bus    *journal.Journal
	log    *slog.Logger
	tracer trace.Tracer
	tell   instruments
	roots  *lru.Cache[of, root]
	jobs   chan job
	done   sync.WaitGroup

	mu       sync.Mutex
	sessions *lru.Cache[subject.Ref, *session]

	Dropped atomic.Int64 // turns without spans
}

// of is a turn: an input of a session.
type of struct {
	ref subject.Ref
	seq uint64
}

// root is the span of a turn, and that of the input's sender, which may be none.
type root struct {
	self, sender trace.SpanContext
}

// session is what was committed since its first open turn began.
type session struct {
	commits []turn.Stored
	bytes   int
}

// job is a turn that has ended.
type job struct {
	of
	commits []turn.Stored // perhaps not all
}

// New returns a recorder, which Start makes work.
func New(b *journal.Journal, log *slog.Logger) (*Recorder, error) {
	r := &Recorder{bus: b, log: log, tracer: otel.Tracer(scope), jobs: make(chan job, maxJobs)}
	var err error
	if r.roots, err = lru.New[of, root](maxRoots); err != nil {
		return nil, err
	}
	if r.sessions, err = lru.New[subject.Ref, *session](maxSessions); err != nil {
		return nil, err
	}
	r.tell, err = newInstruments()
	return r, err
}

// Start begins to make spans. stop makes those of the turns that have ended; no commit may be stored then.
func (r *Recorder) Start() (stop func()) {
	r.done.Go(func() {
		for j := range r.jobs {
			r.record(j)
		}
	})
	return func() {
		close(r.jobs)
		r.done.Wait()
	}
}

// Begin returns the context of the turn of an input, which has the headers: what is done in it belongs to the turn's
// trace.
func (r *Recorder) Begin(ctx context.Context, ref subject.Ref, seq uint64, h nats.Header) context.Context {
	top, known := r.roots.Get(of{ref, seq})
	if !known {
		top = r.root(ref, seq, h)
		r.roots.Add(of{ref, seq}, top)
	}
	return trace.ContextWithRemoteSpanContext(telemetry.Extract(ctx, h), top.self)
}

// Within returns the context of a step of an open turn, which is a plan or a call.
func (r *Recorder) Within(ctx context.Context, ref subject.Ref, seq uint64, step string) context.Context {
	top := r.rootOf(ctx, ref, seq)
	return trace.ContextWithRemoteSpanContext(ctx, top.self.WithSpanID(spanOf(ref, seq, step)))
}

// rootOf returns the turn's span. If the input was another core's, its message says which trace it is.
func (r *Recorder) rootOf(ctx context.Context, ref subject.Ref, seq uint64) root {
	if top, known := r.roots.Get(of{ref, seq}); known {
		return top
	}
	ctx, cancel := context.WithTimeout(ctx, readWait)
	defer cancel()
	m, err := r.bus.Message(ctx, seq)
	top := r.root(ref, seq, m.Header)
	if err == nil {
		r.roots.Add(of{ref, seq}, top)
	}
	return top
}

// root returns the span of a turn. The sampler decides about it now, because requests say what was decided.
func (r *Recorder) root(ref subject.Ref, seq uint64, h nats.Header) root {
	sender := trace.SpanContextFromContext(telemetry.Extract(context.Background(), h))
	id := sender.TraceID()
	switch {
	case !sender.IsValid():
		id = signals.TraceOf(ref, seq)
	case telemetry.Begun(sender):
		sender = trace.SpanContext{}
	}
	self := spanOf(ref, seq, "")
	ctx := trace.ContextWithRemoteSpanContext(context.Background(), sender)
	_, s := r.tracer.Start(signals.As(ctx, id, self), signals.OperationAgent) // never ended, so it is not sent
	return root{trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: id, SpanID: self, TraceFlags: s.SpanContext().TraceFlags(), TraceState: s.SpanContext().TraceState(), Remote: true,
	}), sender}
}

// spanOf returns the id of a span of a turn. The ids of plans and calls are unique in their session, those of other
// spans in their turn.
func spanOf(ref subject.Ref, seq uint64, id string) trace.SpanID {
	if t := event.TurnID(seq); !turn.Has(t, id) {
		id = t + "/" + id
	}
	return signals.SpanOf(ref, id)
}

// Stored takes a commit that this core has just stored. idle says that no turn is open after it.
func (r *Recorder) Stored(ref subject.Ref, c event.Commit, seq uint64, idle bool) {
	stored := turn.Stored{Commit: c, Sequence: seq, At: time.Now()}
	for i := range c.Events {
		stored.Bytes += len(c.Events[i].Data)
	}
	var ended []uint64
	for _, e := range c.Events {
		if e.Type == event.TypeRecorded || e.Type == event.TypeTurnFailed {
			ended = append(ended, turn.EndOf(e).Sequence())
		}
	}
	r.mu.Lock()
	s, _ := r.sessions.Get(ref)
	if s == nil || len(s.commits) > 0 && s.commits[len(s.commits)-1].Sequence != c.Header.Prev ||
		len(s.commits) >= maxCommits || s.bytes+stored.Bytes > maxBytes {
		s = &session{} // what is missing is read from the log
	}
	s.commits, s.bytes = append(s.commits, stored), s.bytes+stored.Bytes
	if idle {
		r.sessions.Remove(ref)
	} else {
		r.sessions.Add(ref, s)
	}
	commits := s.commits[:len(s.commits):len(s.commits)]
	r.mu.Unlock()
	for _, input := range ended {
		select {
		case r.jobs <- job{of{ref, input}, commits}:
		default:
			r.Dropped.Add(1)
		}
	}
}

// record makes the spans and the metrics of a turn.
func (r *Recorder) record(j job) {
	ctx, cancel := context.WithTimeout(context.Background(), readWait)
	defer cancel()
	if !whole(j) {
		var err error
		if j.commits, _, err = timeline.Read(ctx, r.bus, j.ref, j.seq); err != nil || len(j.commits) == 0 {
			r.Dropped.Add(1)
			r.log.Debug("a turn has no trace, because it cannot be read", "session", j.ref, "turn", event.TurnID(j.seq), "error", err)
			return
		}
	}
	r.emit(ctx, j, timeline.Build(j.seq, j.commits, time.Now()))
}

// whole reports whether the commits have the beginning of the turn.
func whole(j job) bool {
	return slices.ContainsFunc(j.commits, func(c turn.Stored) bool { return timeline.TakesUp(c, j.seq) })
}
