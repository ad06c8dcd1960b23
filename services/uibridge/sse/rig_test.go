package sse_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"skandha.dev/services/test/natstest"
	"skandha.dev/services/test/pipenet"
	"skandha.dev/services/test/transporttest"
	"skandha.dev/services/uibridge/contract"
	"skandha.dev/services/uibridge/sse"
)

// rig is a handler with a backend in memory and a client's socket.
type rig struct {
	*transporttest.Backend
	*sse.Handler
	*transporttest.Server
}

func newRig(t *testing.T, cfg sse.Config) *rig {
	t.Helper()
	transporttest.Leaks(t)
	b := transporttest.New()
	d := sse.New(cfg, b, natstest.Logger(t))
	return &rig{b, d, transporttest.Serve(t, mounted(d), 0)}
}

// piped serves a handler to a principal over pipes, for a bubble of testing/synctest: there
// no time passes while a goroutine works, however busy the machine is.
func piped(t *testing.T, d *sse.Handler, p contract.Principal) *http.Client {
	t.Helper()
	return pipenet.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d.ServeHTTP(w, r.WithContext(contract.WithPrincipal(r.Context(), p)))
	}))
}

// inPipes is the URL of a stream of the session s over pipes.
const inPipes = "http://bridge.invalid/v1/agents/main/sessions/s/events"

// mounted serves the handler as the bridge does.
func mounted(d *sse.Handler) http.Handler {
	mux := http.NewServeMux()
	for _, p := range sse.Patterns() {
		mux.Handle(p, d)
	}
	return mux
}

// event is an event of a stream.
type event struct{ id, name, data string }

func (e event) params(t *testing.T) (p struct {
	Content string        `json:"content"`
	After   string        `json:"after"`
	Code    contract.Code `json:"code"`
},
) {
	t.Helper()
	if err := json.Unmarshal([]byte(e.data), &p); err != nil {
		t.Fatalf("data %q: %v", e.data, err)
	}
	return p
}

// reader reads a stream as the HTML standard defines it.
type reader struct {
	*bufio.Reader
	last     string // event id
	comments int
	retry    string
}

// next returns the next event; io.EOF at the end.
func (r *reader) next() (event, error) {
	e := event{name: "message"}
	var data []string
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return event{}, err
		}
		field, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case line == "\n" && data == nil:
			e = event{name: "message"}
		case line == "\n":
			e.data = strings.Join(data, "\n")
			return e, nil
		case field == "":
			r.comments++
		case field == "id":
			e.id, r.last = value, value
		case field == "event":
			e.name = value
		case field == "data":
			data = append(data, value)
		case field == "retry":
			r.retry = value
		}
	}
}

// until returns the next event of the name.
func (r *reader) until(t *testing.T, name string) event {
	t.Helper()
	for {
		e, err := r.next()
		if err != nil {
			t.Fatalf("waiting for %s: %v", name, err)
		}
		if e.name == name {
			return e
		}
	}
}

// rest returns all events to the end.
func (r *reader) rest(t *testing.T) (all []event) {
	t.Helper()
	for {
		e, err := r.next()
		switch {
		case errors.Is(err, io.EOF):
			return all
		case err != nil:
			t.Fatal(err)
		}
		all = append(all, e)
	}
}

// follow opens a stream of the session s.
func (r *rig) follow(t *testing.T, query, last string) *reader {
	t.Helper()
	return follow(t, http.DefaultClient, r.URL+"/v1/agents/main/sessions/s/events"+query, last)
}

func follow(t *testing.T, c *http.Client, url, last string) *reader {
	t.Helper()
	req, err := http.NewRequestWithContext(natstest.Context(t), http.MethodGet, url, nil)
	transporttest.Fatal(t, err)
	if last != "" {
		req.Header.Set("Last-Event-ID", last)
	}
	res, err := c.Do(req)
	transporttest.Fatal(t, err)
	t.Cleanup(func() { _ = res.Body.Close() })
	if res.StatusCode != http.StatusOK || res.Header.Get("Content-Type") != "text/event-stream" {
		b, _ := io.ReadAll(res.Body)
		t.Fatalf("%s is answered %s %s", url, res.Status, b)
	}
	return &reader{Reader: bufio.NewReader(res.Body)}
}

// post posts JSON below the session s, or anywhere if the path is absolute.
func (r *rig) post(t *testing.T, path, body string, change func(*http.Request)) (status int, answer []byte) {
	t.Helper()
	if !strings.HasPrefix(path, "/") {
		path = "/v1/agents/main/sessions/s/" + path
	}
	req, err := http.NewRequestWithContext(natstest.Context(t), http.MethodPost, r.URL+path, strings.NewReader(body))
	transporttest.Fatal(t, err)
	req.Header.Set("Content-Type", "application/json")
	if change != nil {
		change(req)
	}
	res, err := http.DefaultClient.Do(req)
	transporttest.Fatal(t, err)
	defer func() { _ = res.Body.Close() }()
	answer, err = io.ReadAll(res.Body)
	transporttest.Fatal(t, err)
	if res.Header.Get("Content-Type") != "application/json" || res.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("%s is answered with the headers %v", path, res.Header)
	}
	return res.StatusCode, answer
}
