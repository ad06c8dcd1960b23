package stdio

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"
	"unicode/utf8"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/event"
	"skandha.dev/pkg/strictjson"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/listener/contract"
)

const again = 500 * time.Millisecond // pause before a line is emitted again

// Deps are a listener's input, output and logger.
type Deps struct {
	In     io.Reader // required
	Out    io.Writer // required with Config.Acks
	Logger *slog.Logger
}

// Listener reads lines.
type Listener struct {
	name subject.Writer
	cfg  Config
	in   io.Reader
	out  io.Writer
	log  *slog.Logger
	run  string // prefix of the ids of this run's lines

	emitter contract.Emitter
	once    sync.Once
	stop    chan struct{} // closed: stop reading
	done    chan struct{}
	end     context.CancelFunc // of work in progress

	mu      sync.Mutex
	started bool
	err     error // how it ended
	bad     int   // lines that were refused
	first   error // why the first was
}

var _ contract.Finite = (*Listener)(nil)

// New returns a listener; an error of the configuration names its field.
func New(name subject.Writer, cfg Config, deps Deps) (*Listener, error) {
	if _, err := subject.Parse[subject.Writer](string(name)); err != nil {
		return nil, err
	}
	if err := cfg.Validate(name); err != nil {
		return nil, err
	}
	if deps.In == nil || cfg.Acks && deps.Out == nil {
		return nil, errors.New("standard input, or the output for acks, is missing")
	}
	deps.Logger = cmp.Or(deps.Logger, slog.Default())
	return &Listener{
		name: name, cfg: cfg.withDefaults(name), in: deps.In, out: deps.Out, log: deps.Logger.With("listener", string(name)),
		run: string(bus.NewInstance("line")), stop: make(chan struct{}), done: make(chan struct{}), end: func() {},
	}, nil
}

// Name implements [contract.Listener].
func (l *Listener) Name() subject.Writer { return l.name }

// Done implements [contract.Finite].
func (l *Listener) Done() <-chan struct{} { return l.done }

// Err implements [contract.Finite].
func (l *Listener) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// OnStart implements [contract.Listener].
func (l *Listener) OnStart(ctx context.Context, e contract.Emitter) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.started {
		return fmt.Errorf("listener %s was already started", l.name)
	}
	l.started, l.emitter = true, e
	var work context.Context
	work, l.end = context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		err := l.serve(work)
		l.mu.Lock()
		l.err = err
		l.mu.Unlock()
		close(l.done)
	}()
	return nil
}

// OnStop implements [contract.Listener].
func (l *Listener) OnStop(ctx context.Context) error {
	l.once.Do(func() { close(l.stop) })
	l.mu.Lock()
	started := l.started
	end := l.end
	l.mu.Unlock()
	if !started {
		return nil
	}
	if f, ok := l.in.(*os.File); ok {
		_ = f.SetReadDeadline(time.Now()) // ends a read, where the system supports it
	}
	select {
	case <-l.done:
	case <-ctx.Done():
		end()
		<-l.done
	}
	if err := l.Err(); errors.Is(err, contract.ErrNotTaken) {
		return err
	}
	return nil
}

// serve reads and emits until the input ends or the listener is stopped.
func (l *Listener) serve(ctx context.Context) error {
	r := newReader(l.in)
	defer close(r.want)
	var s splitter
	for n := 0; ; {
		c, stopped := l.read(r)
		s.add(c.data)
		atEnd := c.err != nil && !stopped
		for {
			line, ok, err := s.next(atEnd)
			if !ok {
				break
			}
			n++
			if err == nil {
				err = l.line(ctx, n, line)
			} else {
				l.refused(n, "", err)
			}
			if errors.Is(err, contract.ErrNotTaken) {
				return fmt.Errorf("%w; %d whole lines after it and %d bytes of another were also read", err, s.whole(), s.half())
			}
		}
		switch {
		case stopped && s.half() > 0:
			return fmt.Errorf("listener %s: %w: %d bytes of the incomplete line %d", l.name, contract.ErrNotTaken, s.half(), n+1)
		case stopped:
			return nil
		case errors.Is(c.err, io.EOF):
			return l.summary(n)
		case c.err != nil:
			return errors.Join(fmt.Errorf("listener %s: reading: %w", l.name, c.err), l.summary(n))
		}
	}
}

// read waits for the next chunk, or for the listener to be stopped.
func (l *Listener) read(r *reader) (c chunk, stopped bool) {
	select {
	case <-l.stop:
		return chunk{}, true
	case r.want <- struct{}{}:
	}
	select {
	case c := <-r.got:
		return c, errors.Is(c.err, os.ErrDeadlineExceeded)
	case <-l.stop:
	}
	select {
	case c := <-r.got: // it arrived just before
		return c, true
	default:
		return chunk{}, true
	}
}

// summary returns an error unless all of n lines were accepted.
func (l *Listener) summary(n int) error {
	if l.bad == 0 {
		return nil
	}
	return fmt.Errorf("listener %s: %d of %d lines were refused; the first: %w", l.name, l.bad, n, l.first)
}

// line emits one line; the error is ErrNotTaken, or nil if the line was handled.
func (l *Listener) line(ctx context.Context, n int, line []byte) error {
	if len(line) == 0 {
		return nil
	}
	in, err := l.input(n, line)
	if err != nil {
		l.refused(n, in.ID, err)
		return nil
	}
	for {
		receipt, err := l.emitter.EmitInput(ctx, in)
		switch {
		case err == nil:
			l.ack(ack{Line: n, ID: receipt.ID, Sequence: receipt.Sequence})
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("listener %s: %w: line %d: %w", l.name, contract.ErrNotTaken, n, err)
		case !errors.Is(err, contract.ErrUnavailable):
			l.refused(n, in.ID, err)
			return nil
		}
		l.log.Warn("line is not acknowledged yet; sending it again", "line", n, "error", err)
		wait, cancel := context.WithTimeout(ctx, again)
		<-wait.Done()
		cancel()
	}
}

func (l *Listener) input(n int, line []byte) (contract.Input, error) {
	in := contract.Input{
		Agent: subject.Agent(l.cfg.Agent), Session: subject.Session(l.cfg.Session), Text: string(line),
		ID: fmt.Sprintf("%s-%d", l.run, n), Source: "stdin", Mode: l.cfg.Mode,
	}
	if !l.cfg.JSON {
		return in, nil
	}
	if !utf8.Valid(line) { // the decoder would silently repair it
		return in, fmt.Errorf("%w: the line is not valid UTF-8; send UTF-8", contract.ErrInvalid)
	}
	var o struct {
		Text    string          `json:"text"`
		Session string          `json:"session"`
		ID      string          `json:"id"`
		Mode    event.InputMode `json:"mode"`
	}
	if err := strictjson.Unmarshal(line, &o); err != nil {
		return in, fmt.Errorf("%w: want a JSON object such as {\"text\": \"hello\"}: %s", contract.ErrInvalid,
			strictjson.Explain(err))
	}
	in.Text, in.ID = o.Text, cmp.Or(o.ID, in.ID)
	in.Session = cmp.Or(subject.Session(o.Session), in.Session)
	in.Mode = cmp.Or(o.Mode, in.Mode)
	return in, nil
}

// refused reports a line that is skipped.
func (l *Listener) refused(n int, id string, err error) {
	l.bad++
	if l.first == nil {
		l.first = fmt.Errorf("line %d: %w", n, err)
	}
	l.log.Error("line skipped", "line", n, "error", err)
	l.ack(ack{Line: n, ID: id, Error: err.Error()})
}

// ack is the result of a line.
type ack struct {
	Line     int    `json:"line"`
	ID       string `json:"id,omitempty"`
	Sequence uint64 `json:"sequence,omitempty"`
	Error    string `json:"error,omitempty"`
}

func (l *Listener) ack(a ack) {
	if !l.cfg.Acks {
		return
	}
	b, err := json.Marshal(a)
	if err == nil {
		_, err = l.out.Write(append(b, '\n'))
	}
	if err != nil {
		l.log.Warn("writing the ack of a line failed", "line", a.Line, "error", err)
	}
}
