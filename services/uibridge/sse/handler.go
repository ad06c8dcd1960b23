package sse

import (
	"context"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"skandha.dev/services/internal/bounds"
	"skandha.dev/services/uibridge/contract"
	"skandha.dev/services/uibridge/request"
)

// Config configures the handler. A zero field means its default.
type Config struct {
	MaxMessage int64         `default:"1 MiB"` // bytes of a body
	Timeout    time.Duration `default:"30s"`   // for a request that is not a stream
	WriteWait  time.Duration `default:"10s"`   // how long a peer may take to read an event
	KeepAlive  time.Duration `default:"15s"`   // between comments
	Retry      time.Duration `default:"1s"`    // reconnection delay for browsers
}

func (c Config) withDefaults() Config { return bounds.Filled(c) }

// Handler serves [Patterns]. It must run behind the access layer, which limits the streams
// and ends the contexts of their requests: a stream then ends with onDropped.
type Handler struct {
	cfg     Config
	backend contract.Backend
	desk    *request.Desk
	log     *slog.Logger
	mux     *http.ServeMux

	streams, opened, dropped, requests, failed atomic.Int64
}

const session = "/v1/agents/{agent}/sessions/{session}/"

// Patterns returns the patterns to serve the handler at, for [http.ServeMux.Handle].
func Patterns() []string {
	return []string{
		session + "events", session + "inputs", session + "confirmations", session + "cancels", session + "commands",
		"/v1/rpc/{method}",
	}
}

// New creates a handler.
func New(cfg Config, b contract.Backend, log *slog.Logger) *Handler {
	log = log.With("transport", "sse")
	d := &Handler{cfg: cfg.withDefaults(), backend: b, desk: request.NewDesk(b, log), log: log, mux: http.NewServeMux()}
	d.mux.HandleFunc(session+"events", d.only(http.MethodGet, d.events))
	for path, method := range request.Paths {
		d.mux.HandleFunc(session+path,
			d.only(http.MethodPost, func(w http.ResponseWriter, r *http.Request) { d.post(w, r, method) }))
	}
	d.mux.HandleFunc("/v1/rpc/{method}", d.only(http.MethodPost, d.rpc))
	d.mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		request.Refuse(w, &contract.Error{Code: contract.CodeNotFound, Message: "unknown path"}, 0)
	})
	return d
}

// Counters returns the metrics: streams that are open, were opened, and were dropped
// because they did not keep up; requests, and failed ones.
func (d *Handler) Counters() map[string]int64 {
	return map[string]int64{
		"sse_open": d.streams.Load(), "sse_connected_total": d.opened.Load(), "sse_dropped_total": d.dropped.Load(),
		"http_requests_total": d.requests.Load(), "http_failed_total": d.failed.Load(),
	}
}

// ServeHTTP implements [http.Handler].
func (d *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { d.mux.ServeHTTP(w, r) }

// only lets one HTTP method through, and only authenticated requests.
func (d *Handler) only(method string, next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method != method:
			w.Header().Set("Allow", method)
			request.Refuse(w, contract.Invalid("method", "use "+method), http.StatusMethodNotAllowed)
		case contract.PrincipalOf(r.Context()).Name == "":
			request.Refuse(w, &contract.Error{Code: contract.CodeUnauthenticated, Message: "missing token"}, 0)
		default:
			next(w, r)
		}
	}
}

// post handles a POST below a session.
func (d *Handler) post(w http.ResponseWriter, r *http.Request, method string) {
	ref, err := request.Ref(r.PathValue("agent"), r.PathValue("session"))
	if err != nil {
		d.refuse(w, r, method, err, 0)
		return
	}
	d.call(w, r, method, request.Origin{Ref: ref, Fixed: true}, http.StatusAccepted)
}

func (d *Handler) rpc(w http.ResponseWriter, r *http.Request) {
	d.call(w, r, r.PathValue("method"), request.Origin{}, http.StatusOK)
}

func (d *Handler) call(w http.ResponseWriter, r *http.Request, method string, o request.Origin, status int) {
	d.requests.Add(1)
	var err error
	if o.Source, err = request.UI(r.URL.Query(), "http"); err != nil {
		d.refuse(w, r, method, err, 0)
		return
	}
	body, refusal, err := d.body(w, r)
	if err != nil {
		d.refuse(w, r, method, err, refusal)
		return
	}
	// An accepted request is stored even if the client does not wait for the answer.
	ctx := r.Context()
	if request.Writes(method) {
		ctx = context.WithoutCancel(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, d.cfg.Timeout)
	defer cancel()
	result, err := d.desk.Call(ctx, contract.PrincipalOf(r.Context()), o, method, body)
	if err != nil {
		d.refuse(w, r, method, err, 0)
		return
	}
	d.deadline(w)
	request.JSON(w, status, result)
}

// body reads the parameters with [request.Body].
func (d *Handler) body(w http.ResponseWriter, r *http.Request) (body []byte, status int, err error) {
	if body, status, err = request.Body(w, r, d.cfg.MaxMessage); err != nil || len(body) == 0 {
		return nil, status, err
	}
	body, err = request.Encoded(body)
	return body, 0, err
}

func (d *Handler) refuse(w http.ResponseWriter, r *http.Request, method string, err error, status int) {
	d.failed.Add(1)
	d.deadline(w)
	e := contract.ErrorOf(err)
	d.log.Debug("request refused", "from", r.RemoteAddr, "principal", contract.PrincipalOf(r.Context()).Name,
		"method", method, "code", e.Code, "field", e.Field)
	request.Refuse(w, err, status)
}

// deadline limits the time for writing the answer.
func (d *Handler) deadline(w http.ResponseWriter) {
	// A server that does not support this has its own WriteTimeout.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(d.cfg.WriteWait))
}
