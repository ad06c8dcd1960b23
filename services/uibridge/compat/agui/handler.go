package agui

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/bounds"
	"skandha.dev/services/uibridge/compat/turn"
	"skandha.dev/services/uibridge/contract"
	"skandha.dev/services/uibridge/eventstream"
	"skandha.dev/services/uibridge/request"
)

// Config configures the handler. A zero field means its default.
type Config struct {
	MaxMessage int64         `default:"8 MiB"` // bytes of a body, which holds the whole conversation
	WriteWait  time.Duration `default:"10s"`   // how long a peer may take to read an event
	KeepAlive  time.Duration `default:"15s"`   // between comments
}

func (c Config) withDefaults() Config { return bounds.Filled(c) }

// Handler serves [Patterns]. It must run behind the access layer.
type Handler struct {
	cfg     Config
	backend contract.Backend
	log     *slog.Logger
	sent    *sentRequests

	open, runs, failed atomic.Int64
}

// Patterns returns the patterns to serve the handler at, for [http.ServeMux.Handle].
func Patterns() []string { return []string{"/v1/agui/{agent}"} }

// New creates a handler.
func New(cfg Config, b contract.Backend, log *slog.Logger) *Handler {
	return &Handler{cfg: cfg.withDefaults(), backend: b, log: log.With("transport", "agui"), sent: newSentRequests()}
}

// Counters returns the metrics: open runs, runs that were begun, and failed requests.
func (d *Handler) Counters() map[string]int64 {
	return map[string]int64{
		"agui_open": d.open.Load(), "agui_runs_total": d.runs.Load(), "agui_failed_total": d.failed.Load(),
	}
}

// ServeHTTP implements [http.Handler].
func (d *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		request.Refuse(w, contract.Invalid("method", "use POST"), http.StatusMethodNotAllowed)
		return
	}
	run, status, err := d.read(w, r)
	if err == nil {
		d.open.Add(1)
		defer d.open.Add(-1)
		err = run.follow(r.Context())
	}
	switch {
	case err == nil:
	case run != nil && run.out.Begun():
		d.log.Debug("a run's stream ended early", "session", run.ref, "run", run.in.RunID, "error", err)
	default:
		d.failed.Add(1)
		d.log.Debug("run refused", "from", r.RemoteAddr, "principal", contract.PrincipalOf(r.Context()).Name, "error", err)
		request.Refuse(w, err, status)
	}
}

// read reads the request. A status other than 0 replaces that of the error.
func (d *Handler) read(w http.ResponseWriter, r *http.Request) (*run, int, error) {
	p := contract.PrincipalOf(r.Context())
	if p.Name == "" {
		return nil, 0, &contract.Error{Code: contract.CodeUnauthenticated, Message: "missing token"}
	}
	body, status, err := request.Body(w, r, d.cfg.MaxMessage)
	if err != nil {
		return nil, status, err
	}
	in, err := readInput(body)
	if err != nil {
		return nil, 0, err
	}
	ref, err := request.Ref(r.PathValue("agent"), string(SessionOf(in.ThreadID)))
	if err != nil {
		return nil, 0, err
	}
	return &run{
		handler: d, p: p, in: in, ref: ref, out: eventstream.New(w, d.cfg.WriteWait),
		translator: newTranslator(in.ThreadID, in.RunID),
	}, 0, nil
}

// run is one request.
type run struct {
	handler    *Handler
	p          contract.Principal
	in         *RunAgentInput
	ref        subject.Ref
	out        *eventstream.Writer
	translator *translator
	after      string                     // the last id that was sent
	replayed   time.Time                  // when a replayed turn was attached to; zero: not a replay
	waiting    []contract.ToolCallRequest // pending requests at that time
}

// errInterrupted ends the stream of a run that waits for people.
var errInterrupted = errors.New("interrupted")

// follow streams the run. If the response has begun, the error is only for the log.
func (r *run) follow(ctx context.Context) error {
	if len(r.in.Tools) > 0 {
		return r.refuseTools()
	}
	t, err := r.start(ctx)
	if err != nil {
		return err
	}
	defer t.Close()
	r.handler.runs.Add(1)
	if t.Replayed {
		r.replay(&t.Attached)
	}
	r.translator.begin(r.in, r.ref, t.Attached.State)
	if err := r.send(); err != nil {
		return err
	}
	err = t.Each(ctx, r.handler.cfg.KeepAlive, r.next, r.out.KeepAlive)
	if err == nil || errors.Is(err, errInterrupted) {
		return nil
	}
	// The client may have disconnected; but if the bridge stops or the token has expired, it
	// gets the error.
	r.translator.fail(err)
	return errors.Join(err, r.send())
}

func (r *run) refuseTools() error {
	r.translator.emit(Event{Type: RunStarted, ThreadID: r.in.ThreadID, RunID: r.in.RunID})
	r.translator.emit(Event{
		Type: RunError, Code: "unsupported_tools",
		Message: "tools: client tools are not supported, because the agent's tools are on the bus, " +
			"where every UI sees the calls and policy applies; send tools: [], and offer a tool as a plugin",
	})
	return r.send()
}

// start sends the input, or the answers, and returns the turn to follow.
func (r *run) start(ctx context.Context) (*turn.Turn, error) {
	if len(r.in.Resume) > 0 {
		return r.resume(ctx)
	}
	text, err := r.in.text()
	if err != nil {
		return nil, err
	}
	t, err := turn.Attach(ctx, r.handler.backend, r.p, r.ref, "", "agui")
	if err != nil {
		return nil, err
	}
	if r.in.props.Interrupts && len(t.Attached.Pending) > 0 {
		t.Close()
		return nil, &contract.Error{
			Code: contract.CodeConflict, Field: "resume",
			Message: "a confirmation request is pending in this thread; first answer " +
				t.Attached.Pending[0].ConfirmationID + " with resume",
		}
	}
	if err := t.Submit(ctx,
		contract.Submission{Text: text, ID: r.in.RunID, Mode: r.in.props.Mode, Source: "agui"}); err != nil {
		t.Close()
		return nil, err
	}
	return t, nil
}

// next translates and sends one notification.
func (r *run) next(v any, id string) error {
	if id != "" {
		r.after = id
	}
	r.translator.translate(v)
	switch v := v.(type) {
	case *contract.Attached:
		r.replay(v)
	case *contract.ToolCallRequest:
		r.handler.sent.Add(r.key(v.ConfirmationID), sentRequest{hash: v.Hash})
	case *contract.StateChange: // follows the last of the turn's confirmation requests
		if asked := r.asked(); r.in.props.Interrupts && v.State == event.StateConfirming && len(asked) > 0 {
			r.interrupt(asked)
			return errors.Join(errInterrupted, r.send())
		}
	}
	return r.send()
}

func (r *run) replay(now *contract.Attached) { r.replayed, r.waiting = time.Now(), now.Pending }

// asked returns the requests that are pending now. Those in a replayed part of the turn may
// already be answered.
func (r *run) asked() []contract.ToolCallRequest {
	return slices.DeleteFunc(slices.Clone(r.translator.pending), func(q contract.ToolCallRequest) bool {
		same := func(p contract.ToolCallRequest) bool { return p.ConfirmationID == q.ConfirmationID }
		return q.Time.Before(r.replayed) && !slices.ContainsFunc(r.waiting, same)
	})
}

// interrupt ends the run until it is resumed.
func (r *run) interrupt(asked []contract.ToolCallRequest) {
	for _, q := range asked {
		r.handler.sent.Add(r.key(q.ConfirmationID),
			sentRequest{hash: q.Hash, after: r.after, calls: r.translator.calls})
	}
	r.translator.interrupt(asked)
}

func (r *run) key(confirmation string) sentKey {
	return sentKey{principal: r.p.Name, ref: r.ref, id: confirmation}
}

// send sends the translated events.
func (r *run) send() error {
	for _, e := range r.translator.take() {
		b, err := json.Marshal(e)
		if err != nil {
			return err
		}
		if err := r.out.Data(b); err != nil {
			return err
		}
	}
	return nil
}
