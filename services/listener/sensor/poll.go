package sensor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"skandha.dev/services/internal/program"
	"skandha.dev/services/internal/text"
	"skandha.dev/services/listener/contract"
	"skandha.dev/services/listener/mapping"
)

// maxReason bounds what a program or a server says about its failure, in bytes.
const maxReason = 200

// poller asks at intervals.
type poller struct {
	poll Poll
	read func(context.Context) ([]mapping.Reading, error)
}

func (p *poller) run(ctx context.Context, s *sink) error {
	tick := time.NewTicker(p.poll.Interval)
	defer tick.Stop()
	for {
		readings, err := p.once(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			s.health.Set(contract.StateDown, err.Error())
		default:
			s.ok()
			if err := s.deliver(ctx, readings); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (p *poller) once(ctx context.Context) ([]mapping.Reading, error) {
	ctx, cancel := context.WithTimeout(ctx, p.poll.Timeout)
	defer cancel()
	readings, err := p.read(ctx)
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = fmt.Errorf("no answer within %s (timeout)", p.poll.Timeout)
	}
	return readings, err
}

// noRedirects: a redirect could take headers with secrets elsewhere.
var noRedirects = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}

// get requests an address and returns its body.
func get(ctx context.Context, address string, headers map[string]string, limit int64) ([]byte, error) {
	read, err := secrets(headers)
	if err != nil {
		return nil, fmt.Errorf("headers.%w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("User-Agent", "skandha-listener")
	for k, v := range read {
		req.Header.Set(k, v)
	}
	resp, err := noRedirects.Do(req)
	if err != nil {
		if u, ok := errors.AsType[*url.Error](err); ok { // its text repeats the address, whose query may be secret
			err = u.Err
		}
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("reading the body: %w", err)
	case resp.StatusCode/100 == 3:
		return nil, fmt.Errorf("%s: redirects are not followed; set url to its target", resp.Status)
	case resp.StatusCode/100 != 2:
		return nil, fmt.Errorf("%s: %s", resp.Status, reason(body))
	case int64(len(body)) > limit:
		return nil, fmt.Errorf("the body has more than %d bytes (max_bytes)", limit)
	}
	return body, nil
}

func newHTTPSource(cfg HTTP, name string) func(context.Context) ([]mapping.Reading, error) {
	return func(ctx context.Context) ([]mapping.Reading, error) {
		body, err := get(ctx, cfg.URL, cfg.Headers, cfg.MaxBytes)
		if err != nil {
			return nil, err
		}
		return []mapping.Reading{{Name: name, Data: body}}, nil
	}
}

// reason is one line of what a program or a server says.
func reason(said []byte) string {
	line, _, _ := strings.Cut(strings.TrimSpace(strings.ToValidUTF8(string(said), "")), "\n")
	return text.Cut(line, maxReason)
}

// vector is the answer of Prometheus to an instant query:
// https://prometheus.io/docs/prometheus/latest/querying/api/
type vector struct {
	Status string `json:"status"`
	Error  string `json:"error"`
	Data   struct {
		ResultType string          `json:"resultType"`
		Result     json.RawMessage `json:"result"`
	} `json:"data"`
}

type sample struct {
	Metric map[string]string `json:"metric"`
	Value  [2]any            `json:"value"` // time in seconds, value as text
}

func newPrometheusSource(cfg Prometheus) func(context.Context) ([]mapping.Reading, error) {
	address := strings.TrimSuffix(cfg.URL, "/") + "/api/v1/query?query=" + url.QueryEscape(cfg.Query)
	return func(ctx context.Context) ([]mapping.Reading, error) {
		body, err := get(ctx, address, cfg.Headers, cfg.MaxBytes)
		if err != nil {
			return nil, err
		}
		return series(body, cfg.Query)
	}
}

// series reads an answer of Prometheus.
func series(body []byte, query string) ([]mapping.Reading, error) {
	var v vector
	if err := json.Unmarshal(body, &v); err != nil {
		return nil, fmt.Errorf("not an answer of Prometheus: %w", err)
	}
	var samples []sample
	var err error
	switch {
	case v.Status != "success":
		return nil, fmt.Errorf("the query failed: %s", reason([]byte(v.Error)))
	case v.Data.ResultType == "vector":
		err = json.Unmarshal(v.Data.Result, &samples)
	case v.Data.ResultType == "scalar":
		samples = make([]sample, 1)
		err = json.Unmarshal(v.Data.Result, &samples[0].Value)
	default:
		return nil, fmt.Errorf("the query yields a %s; ask for a vector or a scalar", reason([]byte(v.Data.ResultType)))
	}
	if err != nil {
		return nil, fmt.Errorf("not an answer of Prometheus: %w", err)
	}
	var out []mapping.Reading
	for _, s := range samples {
		number, ok := s.Value[1].(string)
		if !ok {
			return nil, errors.New("not an answer of Prometheus: a value is not text")
		}
		data, err := json.Marshal(map[string]any{"value": number, "metric": s.Metric})
		if err != nil {
			return nil, err
		}
		out = append(out, mapping.Reading{Name: seriesName(s.Metric, query), Data: data})
	}
	return out, nil
}

// seriesName writes the labels as PromQL does.
func seriesName(metric map[string]string, query string) string {
	if len(metric) == 0 {
		return query
	}
	var labels []string
	for k, v := range metric {
		if k != "__name__" {
			labels = append(labels, fmt.Sprintf("%s=%q", k, v))
		}
	}
	slices.Sort(labels)
	if len(labels) == 0 {
		return metric["__name__"]
	}
	return metric["__name__"] + "{" + strings.Join(labels, ",") + "}"
}

type commandSource struct {
	cfg  Command
	name string
}

func (c commandSource) read(ctx context.Context) ([]mapping.Reading, error) {
	env, err := secrets(c.cfg.Env)
	if err != nil {
		return nil, fmt.Errorf("env.%w", err)
	}
	p := program.Program{Args: c.cfg.Args, Dir: c.cfg.Dir, Env: program.Minimal(), MaxOutput: int(c.cfg.MaxBytes)}
	for name, v := range env {
		p.Env = append(p.Env, name+"="+v)
	}
	out, err := program.Run(ctx, p)
	var start *program.StartError
	switch {
	case errors.As(err, &start):
		return nil, fmt.Errorf("starting the command: %w", err)
	case errors.Is(err, program.ErrTooMuch):
		return nil, fmt.Errorf("the output has more than %d bytes (max_bytes)", c.cfg.MaxBytes)
	case err != nil:
		return nil, fmt.Errorf("the command failed: %s", program.Reason(err, reason(out.Errors)))
	}
	return []mapping.Reading{{Name: c.name, Data: out.Out}}, nil
}
