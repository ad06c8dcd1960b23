package uibridge

import (
	"context"
	"maps"
	"net/http"

	"go.opentelemetry.io/otel/propagation"

	"skandha.dev/services/internal/buildinfo"
	"skandha.dev/services/uibridge/access"
	"skandha.dev/services/uibridge/backend"
	"skandha.dev/services/uibridge/camera"
	"skandha.dev/services/uibridge/compat/agui"
	"skandha.dev/services/uibridge/compat/mcp"
	"skandha.dev/services/uibridge/compat/openai"
	"skandha.dev/services/uibridge/contract"
	"skandha.dev/services/uibridge/hooks"
	"skandha.dev/services/uibridge/hub"
	"skandha.dev/services/uibridge/inspect"
	"skandha.dev/services/uibridge/markdown"
	"skandha.dev/services/uibridge/request"
	"skandha.dev/services/uibridge/rpc"
	"skandha.dev/services/uibridge/sse"
	"skandha.dev/services/uibridge/web"
)

// transports are the handlers that serve the bridge's protocols, and their backend.
type transports struct {
	backend   *backend.Backend
	ws        *rpc.Handler
	sse       *sse.Handler
	agui      *agui.Handler
	openai    *openai.Handler
	mcp       *mcp.Handler
	artifacts http.Handler
	cameras   *camera.Cameras
	hooks     *hooks.Handler
}

func newTransports(a *access.Access, deps Deps) (*transports, error) {
	log := deps.Log
	b, err := backend.New(backend.Config{},
		backend.Deps{Bus: deps.Bus, Log: log, Markdown: hub.Rendering[*markdown.Stream](markdown.New()), Approves: a.Approves})
	if err != nil {
		return nil, err
	}
	look := inspect.Deps{Client: b.Client(), Log: log}
	b.Add(inspect.Methods(look)...)
	limited := a.Limit(b)
	return &transports{
		backend: b,
		// Requests on a WebSocket are counted where they are read.
		ws: rpc.New(rpc.Config{Limit: func(_ context.Context, p contract.Principal, method string) error {
			return a.Spend(p, access.UseOf(method))
		}}, b, log),
		sse:    sse.New(sse.Config{}, limited, log),
		agui:   agui.New(agui.Config{}, limited, log),
		openai: openai.New(openai.Config{}, limited, b, log),
		mcp: mcp.New(mcp.Config{}, mcp.Deps{
			Backend: limited, Artifact: inspect.ReadArtifact(look), Version: buildinfo.String(), Log: log,
		}),
		artifacts: inspect.Artifacts(look),
		cameras:   camera.New(deps.Bus, log),
		hooks:     hooks.New(b.Client(), log),
	}, nil
}

// run runs the backend until ctx ends, which is after all requests.
func (t *transports) run(ctx context.Context) error {
	defer t.mcp.Close()
	return t.backend.Run(ctx)
}

func (t *transports) counters() map[string]int64 {
	st := t.backend.Stats()
	out := map[string]int64{"sessions": int64(st.Sessions), "feeds": int64(st.Feeds), "feeds_slow_total": st.Slow}
	for _, c := range []interface{ Counters() map[string]int64 }{t.ws, t.sse, t.agui, t.openai, t.mcp, t.cameras, t.hooks} {
		maps.Copy(out, c.Counters())
	}
	return out
}

// handler serves all paths, with the middleware that protects them.
func (s *Service) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", brief(web.Handler()))
	mux.Handle("/v1/auth/", brief(s.access.Handler()))
	for _, t := range []struct {
		http.Handler
		patterns []string
	}{
		{s.transports.ws, []string{rpc.Path}},
		{s.transports.sse, sse.Patterns()},
		{s.transports.agui, agui.Patterns()},
		{s.transports.openai, openai.Patterns()},
		{s.transports.mcp, []string{mcp.Path}},
	} {
		for _, pattern := range t.patterns {
			mux.Handle(pattern, t)
		}
	}
	mux.Handle(inspect.ArtifactsPattern, brief(s.transports.artifacts))
	mux.Handle(camera.Path, brief(s.transports.cameras))
	mux.Handle(hooks.Pattern, brief(s.transports.hooks))
	mux.HandleFunc("/v1/", func(w http.ResponseWriter, r *http.Request) {
		refuse(w, r, &contract.Error{
			Code: contract.CodeNotFound, Message: "unknown path, or wrong method for it; see " + pathsDoc,
		}, 0)
	})
	return recovered(s.deps.Log, secured(s.cert != nil, paced(s.access.Protect(traced(mux)))))
}

// traced puts what a request asks for into the trace that its header traceparent names. A connection that stays open
// has many requests, and no trace.
func traced(next http.Handler) http.Handler {
	var p propagation.TraceContext
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Traceparent") != "" && r.Header.Get("Upgrade") == "" {
			r = r.WithContext(p.Extract(r.Context(), propagation.HeaderCarrier(r.Header)))
		}
		next.ServeHTTP(w, r)
	})
}

// bodyOf returns the media type of the bodies that the handler of a path reads.
func bodyOf(path string) string {
	switch {
	case path == openai.PathHears:
		return "multipart/form-data"
	case camera.Serves(path):
		return "image/jpeg"
	}
	return "application/json"
}

// pathsDoc names the documentation of all paths.
const pathsDoc = `"HTTP paths" in deploy/docs/api.md (skandha docs api)`

// refuse answers a request that no handler accepts, in the error format of its path's
// protocol.
func refuse(w http.ResponseWriter, r *http.Request, err error, status int) {
	if openai.Serves(r.URL.Path) {
		openai.Refuse(w, err, status)
		return
	}
	request.Refuse(w, err, status)
}
