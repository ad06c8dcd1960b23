package openai

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/bounds"
	"skandha.dev/services/uibridge/contract"
	"skandha.dev/services/uibridge/request"
)

// Config configures the handler. A zero field means its default.
type Config struct {
	MaxMessage    int64         `default:"8 MiB"` // bytes of a body, which holds the whole conversation
	Conversations int           `default:"16384"` // remembered ones
	WriteWait     time.Duration `default:"10s"`   // how long a peer may take to read an event
	KeepAlive     time.Duration `default:"15s"`   // between comments of a stream
	DecisionWait  time.Duration `default:"1m"`    // how long a request without stream waits for a person
}

func (c Config) withDefaults() Config { return bounds.Filled(c) }

// Handler serves [Patterns]. It must run behind the access layer.
type Handler struct {
	cfg           Config
	backend       contract.Backend
	voices        Voices
	audio         chan struct{} // a place for each request with audio
	log           *slog.Logger
	mux           *http.ServeMux
	conversations *conversations
	began         time.Time

	open, requests, failed atomic.Int64
}

// Patterns returns the patterns to serve the handler at, for [http.ServeMux.Handle].
func Patterns() []string {
	out := []string{"/v1/chat/completions", "/v1/models", "/v1/models/{id...}", PathHears, pathSpeaks}
	for _, path := range elsewhere {
		out = append(out, path, path+"/{rest...}")
	}
	return out
}

// The paths of speech. The body of PathHears is multipart/form-data.
const (
	PathHears  = "/v1/audio/transcriptions"
	pathSpeaks = "/v1/audio/speech"
)

// elsewhere lists paths of OpenAI's API that the bridge does not support. Its clients only
// show messages in OpenAI's format.
var elsewhere = []string{
	"/v1/responses", "/v1/completions", "/v1/embeddings", "/v1/conversations", "/v1/assistants", "/v1/threads",
	"/v1/files", "/v1/images", "/v1/audio",
	"/v1/moderations", "/v1/batches", "/v1/fine_tuning", "/v1/vector_stores", "/v1/realtime",
}

// Serves reports whether a path belongs to OpenAI's API, so that its errors have OpenAI's
// format.
func Serves(path string) bool {
	below := func(p string) bool { return path == p || strings.HasPrefix(path, p+"/") }
	return below("/v1/chat") || below("/v1/models") || slices.ContainsFunc(elsewhere, below)
}

// Refuse answers in OpenAI's format, for middleware in front of the handler. A status of 0
// means the error's.
func Refuse(w http.ResponseWriter, err error, status int) {
	e := toAPIError(err)
	if status != 0 {
		e.status, e.Type = status, cmp.Or(types[status], "server_error")
	}
	refuse(w, e)
}

// New creates a handler.
func New(cfg Config, b contract.Backend, v Voices, log *slog.Logger) *Handler {
	cfg = cfg.withDefaults()
	d := &Handler{
		cfg: cfg, backend: b, voices: v, audio: make(chan struct{}, audioSlots), log: log.With("transport", "openai"), mux: http.NewServeMux(),
		conversations: newConversations(cfg.Conversations), began: time.Now(),
	}
	d.mux.HandleFunc("/v1/chat/completions", d.only(http.MethodPost, d.complete))
	d.mux.HandleFunc("/v1/models", d.only(http.MethodGet, d.models))
	d.mux.HandleFunc("/v1/models/{id...}", d.only(http.MethodGet, d.model))
	d.mux.HandleFunc(PathHears, d.only(http.MethodPost, d.transcriptions))
	d.mux.HandleFunc(pathSpeaks, d.only(http.MethodPost, d.speech))
	d.mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		refuse(w, errorOf(http.StatusNotFound, "unknown_url",
			"unsupported path; of OpenAI's API, only POST /v1/chat/completions, /v1/audio/transcriptions and /v1/audio/speech and "+
				"GET /v1/models are available; use the chat completions API of your client"))
	})
	return d
}

// Counters returns the metrics: open requests, all requests, and failed ones.
func (d *Handler) Counters() map[string]int64 {
	return map[string]int64{
		"openai_open": d.open.Load(), "openai_requests_total": d.requests.Load(), "openai_failed_total": d.failed.Load(),
	}
}

// ServeHTTP implements [http.Handler].
func (d *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { d.mux.ServeHTTP(w, r) }

// only lets one HTTP method through, and only authenticated requests, and answers errors.
func (d *Handler) only(method string, next func(http.ResponseWriter, *http.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		d.requests.Add(1)
		var err error
		switch {
		case r.Method != method:
			w.Header().Set("Allow", method)
			err = errorOf(http.StatusMethodNotAllowed, "method_not_allowed", "use "+method)
		case contract.PrincipalOf(r.Context()).Name == "":
			err = &contract.Error{Code: contract.CodeUnauthenticated, Message: "missing token; send it as the API key"}
		default:
			err = next(w, r)
		}
		if err != nil {
			d.failed.Add(1)
			d.log.Debug("request refused", "from", r.RemoteAddr, "principal", contract.PrincipalOf(r.Context()).Name,
				"error", err)
			refuse(w, err)
		}
	}
}

// complete answers a chat completion. The caller answers its error; a response that has
// begun reports its own.
func (d *Handler) complete(w http.ResponseWriter, r *http.Request) error {
	d.open.Add(1)
	defer d.open.Add(-1)
	body, err := d.body(w, r)
	if err != nil {
		return err
	}
	c, err := readCompletion(body)
	if err != nil {
		return err
	}
	named := cmp.Or(r.Header.Get("X-Skandha-Session"), c.Metadata[metaSession])
	if named != "" && !subject.Valid(named) {
		return invalid("X-Skandha-Session", "want 1 to 64 characters of A-Z a-z 0-9 _ -")
	}
	a := &answer{
		handler: d, p: contract.PrincipalOf(r.Context()), c: c, id: r.Header.Get("Idempotency-Key"), w: w,
		created: time.Now().Unix(),
	}
	return a.serve(r.Context(), subject.Session(named))
}

func (d *Handler) body(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	body, status, err := request.Body(w, r, d.cfg.MaxMessage)
	switch {
	case status == http.StatusUnsupportedMediaType:
		return nil, errorOf(status, "unsupported_media_type", err.Error())
	case err != nil:
		e := toAPIError(err)
		e.Param = nil // the error is not about a parameter
		return nil, e
	}
	return body, nil
}

// model is an OpenAI model.
type model struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	OwnedBy string `json:"owned_by"`
}

// agents returns core's agents that the principal may access.
func (d *Handler) agents(ctx context.Context) ([]subject.Agent, error) {
	p := contract.PrincipalOf(ctx)
	if err := p.Require(contract.See, ""); err != nil {
		return nil, err
	}
	m, ok := d.backend.Methods()["getStatus"]
	if !ok {
		return nil, fmt.Errorf("listing models: the backend has no getStatus")
	}
	result, err := m.Call(ctx, p, nil)
	if err != nil {
		return nil, err
	}
	b, err := json.Marshal(result)
	var status struct {
		Agents []subject.Agent `json:"agents"`
	}
	if err == nil {
		err = json.Unmarshal(b, &status)
	}
	if err != nil {
		return nil, fmt.Errorf("listing models: %w", err)
	}
	return slices.DeleteFunc(status.Agents, func(a subject.Agent) bool { return p.Require(contract.See, a) != nil }), nil
}

func (d *Handler) models(w http.ResponseWriter, r *http.Request) error {
	agents, err := d.agents(r.Context())
	if err != nil {
		return err
	}
	list := struct {
		Object string  `json:"object"`
		Data   []model `json:"data"`
	}{Object: "list", Data: []model{}}
	for _, a := range agents {
		list.Data = append(list.Data, d.modelOf(string(a)))
	}
	request.JSON(w, http.StatusOK, list)
	return nil
}

func (d *Handler) model(w http.ResponseWriter, r *http.Request) error {
	agents, err := d.agents(r.Context())
	if err != nil {
		return err
	}
	id := r.PathValue("id")
	for _, a := range agents {
		if id == string(a) || id == "skandha/"+string(a) {
			request.JSON(w, http.StatusOK, d.modelOf(id))
			return nil
		}
	}
	return noModel(id)
}

func (d *Handler) modelOf(id string) model {
	return model{ID: id, Object: "model", Created: d.began.Unix(), OwnedBy: "skandha"}
}
