package webhook

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/jsondoc"
	"skandha.dev/services/listener/contract"
	"skandha.dev/services/listener/web"
)

// atOnce is how many inputs may be in flight.
const atOnce = 64

// Stats counts requests that did not become inputs.
type Stats struct {
	Rejected atomic.Int64 // 4xx
	Failed   atomic.Int64 // 429 and 503
}

// Deps are a listener's dependencies.
type Deps struct {
	Logger *slog.Logger     // default slog.Default
	Now    func() time.Time // default time.Now
	Stats  *Stats           // may be nil
}

// Listener is the listener and the HTTP handler of its path.
type Listener struct {
	name     subject.Writer
	cfg      Config
	keys     [][]byte
	template *jsondoc.Template
	log      *slog.Logger
	now      func() time.Time
	stats    *Stats

	started  atomic.Bool
	emitter  contract.Emitter
	inFlight contract.InFlight
	limit    chan struct{}
	life     context.Context //nolint:containedctx // of the listener: work in progress ends with it, not with its request
	end      context.CancelFunc
}

var (
	_ contract.Listener = (*Listener)(nil)
	_ http.Handler      = (*Listener)(nil)
)

// New returns a listener and reads its secrets; an error names the field.
func New(name subject.Writer, cfg Config, deps Deps) (*Listener, error) {
	if _, err := subject.Parse[subject.Writer](string(name)); err != nil {
		return nil, err
	}
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	keys, err := cfg.keys()
	if err != nil {
		return nil, err
	}
	t, err := cfg.template()
	if err != nil {
		return nil, err
	}
	deps.Logger = cmp.Or(deps.Logger, slog.Default())
	if deps.Now == nil {
		deps.Now = time.Now
	}
	deps.Stats = cmp.Or(deps.Stats, &Stats{})
	l := &Listener{
		name: name, cfg: cfg.withDefaults(), keys: keys, template: t, log: deps.Logger.With("listener", string(name)),
		now: deps.Now, stats: deps.Stats, limit: make(chan struct{}, atOnce),
	}
	l.life, l.end = context.WithCancel(context.Background())
	return l, nil
}

// Name implements [contract.Listener].
func (l *Listener) Name() subject.Writer { return l.name }

// Path returns the path that the listener is to be served on.
func (l *Listener) Path() string { return "/hooks/" + string(l.name) }

// OnStart implements [contract.Listener]. Before OnStart and after OnStop, requests are
// answered with 503.
func (l *Listener) OnStart(_ context.Context, e contract.Emitter) error {
	if !l.started.CompareAndSwap(false, true) {
		return fmt.Errorf("listener %s was already started", l.name)
	}
	l.emitter = e
	l.inFlight.Open()
	return nil
}

// OnStop implements [contract.Listener].
func (l *Listener) OnStop(ctx context.Context) error {
	defer l.end()
	if err := l.inFlight.Shut(ctx); err != nil {
		return fmt.Errorf("listener %s: %w; their senders got no 2xx", l.name, err)
	}
	return nil
}

// ServeHTTP implements [http.Handler].
func (l *Listener) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	leave, ok := l.inFlight.Enter()
	if !ok {
		l.busy(w, http.StatusServiceUnavailable, "10", "the listener is not running")
		return
	}
	defer leave()
	in, f := l.read(w, r)
	if f != nil {
		l.reject(w, r, f)
		return
	}
	select {
	case l.limit <- struct{}{}: // after the signature is verified, so that only known senders count
		defer func() { <-l.limit }()
	default:
		l.busy(w, http.StatusServiceUnavailable, "1", "too many requests in flight")
		return
	}
	ctx, cancel := context.WithTimeout(l.life, l.cfg.Timeout)
	defer cancel()
	receipt, err := l.emitter.EmitInput(ctx, in)
	switch {
	case err == nil:
		web.JSON(w, http.StatusAccepted, receipt)
	case errors.Is(err, contract.ErrInvalid):
		l.reject(w, r, wrong(http.StatusUnprocessableEntity, "body", "%v", err))
	case errors.Is(err, contract.ErrOverloaded):
		l.busy(w, http.StatusTooManyRequests, "5", "too many inputs are waiting; send it again later")
	case errors.Is(err, contract.ErrNoRoom):
		l.busy(w, http.StatusServiceUnavailable, "10", contract.Outage(err)+"; it was not stored")
	case errors.Is(err, contract.ErrRefused): // the reason is logged
		l.busy(w, http.StatusServiceUnavailable, "60", "the bus refuses inputs of this listener for now")
	default:
		l.busy(w, http.StatusServiceUnavailable, "5",
			contract.Outage(err)+"; it is safe to send it again with the same webhook-id")
	}
}

// read makes an input of a request, if the request is valid and its signature matches.
func (l *Listener) read(w http.ResponseWriter, r *http.Request) (contract.Input, *fault) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		return contract.Input{}, wrong(http.StatusMethodNotAllowed, "method", "want POST")
	}
	if t, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil ||
		t != "application/json" && !strings.HasSuffix(t, "+json") {
		return contract.Input{}, wrong(http.StatusUnsupportedMediaType, "Content-Type", "want application/json")
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, l.cfg.MaxBody))
	if err != nil {
		if tooLarge := (&http.MaxBytesError{}); errors.As(err, &tooLarge) {
			return contract.Input{}, wrong(http.StatusRequestEntityTooLarge, "body", "larger than %d bytes (max_body)",
				l.cfg.MaxBody)
		}
		return contract.Input{}, wrong(http.StatusBadRequest, "body", "incomplete: %v", err)
	}
	if !l.cfg.Insecure {
		if f := verify(l.keys, r.Header, body, l.now()); f != nil {
			return contract.Input{}, f
		}
	}
	return l.input(r.Header, body)
}

func (l *Listener) input(h http.Header, body []byte) (contract.Input, *fault) {
	in := contract.Input{Agent: subject.Agent(l.cfg.Agent), Source: "webhook:" + string(l.name), Mode: l.cfg.Mode}
	v, f := decode(body)
	if f != nil {
		return in, f
	}
	if in.ID, f = inputID(h); f != nil {
		return in, f
	}
	if in.Text, f = l.text(v); f != nil {
		return in, f
	}
	in.Session, f = l.session(v)
	return in, f
}

func (l *Listener) reject(w http.ResponseWriter, r *http.Request, f *fault) {
	l.stats.Rejected.Add(1)
	l.log.Info("request rejected", "from", r.RemoteAddr, "status", f.status, "field", f.field, "error", f.msg)
	web.Error(w, f.status, f.field, f.msg)
}

func (l *Listener) busy(w http.ResponseWriter, status int, after, why string) {
	l.stats.Failed.Add(1)
	w.Header().Set("Retry-After", after)
	web.Error(w, status, "", why)
}
