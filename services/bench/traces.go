package bench

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"

	"skandha.dev/services/internal/natsserver"
)

// withTraces compares turns over four processes that send traces, metrics and logs to a collector, which drops them,
// with turns over four that do not.
func withTraces(ctx context.Context, o Options) ([]Row, error) {
	if o.Spawn == nil {
		return nil, nil
	}
	sink := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // if it cannot be read, the sender notices
	}))
	defer sink.Close()
	turns := make([]func(context.Context) error, 0, 2)
	for _, env := range [][]string{{"OTEL_EXPORTER_OTLP_ENDPOINT=" + sink.URL}, {"OTEL_SDK_DISABLED=true"}} {
		b, stop, err := apart(ctx, o, natsserver.Always, env...)
		if err != nil {
			return nil, err
		}
		defer stop()
		t, err := newTalker(b, "one")
		if err != nil {
			return nil, err
		}
		defer t.close()
		turns = append(turns, t.turn)
	}
	ours, raw, err := interleave(ctx, o.n(1000), turns[0], turns[1])
	return []Row{ratio("B18", "a turn with traces, metrics and logs sent by OTLP, against one without", ours, raw, 1.1)}, err
}
