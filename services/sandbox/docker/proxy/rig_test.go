package proxy_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/docker/docker/api"
	"github.com/docker/docker/api/types/system"

	"skandha.dev/services/sandbox/docker/form"
	"skandha.dev/services/sandbox/docker/proxy"
)

const (
	version = "/v1.41"
	imageID = "sha256:1111111111111111111111111111111111111111111111111111111111111111"
	set     = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	mine    = "00000000000000000000000000000000000000000000000000000000000000aa"
	theirs  = "00000000000000000000000000000000000000000000000000000000000000bb"
	// named is the id of nothing, and the name of another's container.
	named   = "00000000000000000000000000000000000000000000000000000000000000cc"
	created = "00000000000000000000000000000000000000000000000000000000000000dd"
)

var (
	origin = form.Origin{
		Owner: form.DefaultOwner, Instance: "sandbox-1", Boot: strings.Repeat("b", 26), Time: "2026-11-26T22:00:00Z",
	}
	engineForm = form.Engine{Info: system.Info{NCPU: 2, CPUCfsQuota: true}, Image: form.Image{ID: imageID}}
	owned      = map[string]string{form.LabelOwner: form.DefaultOwner, form.LabelPurpose: form.PurposeData}
	foreign    = map[string]string{form.LabelOwner: "other", form.LabelPurpose: form.PurposeData}
	ourData    = "skandha-data-" + strings.Repeat("a", 26)
	theirData  = "skandha-data-" + strings.Repeat("b", 26)
	versions   = regexp.MustCompile(`^/v1\.[0-9]+`)
	foreverers = regexp.MustCompile(`^/v1\.[0-9]+/(events|containers/[0-9a-f]{64}/attach)$`)
)

// fakeEngine answers as an engine does, and writes down what it is asked to do. The real one is used by the tests
// of the driver.
type fakeEngine struct {
	t      *testing.T
	socket string
	crowd  int // containers and volumes that it lists

	mu   sync.Mutex
	done []string // requests other than questions
	body string   // of the last one

	attached chan net.Conn // connections that were taken over
	events   chan string
}

func newEngine(t *testing.T) *fakeEngine {
	t.Helper()
	e := &fakeEngine{
		t: t, socket: filepath.Join(shortDir(t), "e.sock"), attached: make(chan net.Conn, 10), events: make(chan string),
	}
	l, err := new(net.ListenConfig).Listen(t.Context(), "unix", e.socket)
	if err != nil {
		t.Fatal(err)
	}
	s := &httptest.Server{Listener: l, Config: &http.Server{Handler: e}} //nolint:gosec // a test's
	s.Start()
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return e
}

// shortDir is a directory for sockets, whose paths are short.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "skandha-proxy-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func (e *fakeEngine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Api-Version", api.DefaultVersion)
	w.Header().Set("X-Engine", "secret")
	path := versions.ReplaceAllString(r.URL.Path, "")
	answer := func(v any) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(v)
	}
	missing := func() {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, `{"message":"not found"}`)
	}
	containers := map[string]map[string]string{mine: owned, theirs: foreign, created: owned}
	volumes := map[string]map[string]string{ourData: owned, theirData: foreign}
	id, isContainer := strings.CutPrefix(path, "/containers/")
	id, inspects := strings.CutSuffix(id, "/json")
	name, isVolume := strings.CutPrefix(path, "/volumes/")
	switch {
	case path == "/_ping":
	case path == "/info":
		answer(map[string]any{"NCPU": 2, "CpuCfsQuota": true, "Name": "secret", "SystemTime": "2026-11-26T22:00:00Z"})
	case path == "/images/"+form.DefaultImage+"/json":
		answer(map[string]any{"Id": imageID})
	case path == "/containers/json":
		answer(slices.Repeat([]map[string]any{{"Id": mine}}, max(e.crowd, 1)))
	case path == "/volumes" && r.Method == http.MethodGet:
		answer(map[string]any{"Volumes": slices.Repeat([]any{map[string]any{"Name": ourData}}, e.crowd)})
	case isContainer && inspects && id == named:
		answer(map[string]any{"Id": theirs, "Config": map[string]any{"Labels": owned}})
	case isContainer && inspects && containers[id] != nil:
		answer(map[string]any{"Id": id, "Config": map[string]any{"Labels": containers[id]}})
	case isContainer && inspects:
		missing()
	case isVolume && r.Method == http.MethodGet && volumes[name] != nil:
		answer(map[string]any{"Name": name, "Labels": volumes[name]})
	case isVolume && r.Method == http.MethodGet:
		missing()
	default:
		e.do(w, r)
	}
}

// do writes down a request that is more than a question.
func (e *fakeEngine) do(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	e.mu.Lock()
	e.done = append(e.done, r.Method+" "+r.RequestURI)
	e.body = string(body)
	e.mu.Unlock()
	switch {
	case strings.HasSuffix(r.URL.Path, "/attach"):
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			e.t.Error(err)
			return
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\nhello")
		e.attached <- conn
	case strings.HasSuffix(r.URL.Path, "/events"):
		_ = http.NewResponseController(w).Flush()
		for {
			select {
			case text := <-e.events:
				_, _ = io.WriteString(w, text)
				_ = http.NewResponseController(w).Flush()
			case <-r.Context().Done():
				e.events <- "over"
				return
			}
		}
	case strings.HasSuffix(r.URL.Path, "/create"):
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_, _ = fmt.Fprintf(w, `{"Id":%q}`, created)
	default:
		w.WriteHeader(http.StatusNoContent)
	}
}

func (e *fakeEngine) did() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.done
}

// rig is a proxy before an engine that is not real.
type rig struct {
	*fakeEngine
	proxy string // its socket
	stop  context.CancelFunc
	ended chan error
}

func newRig(t *testing.T, change ...func(*proxy.Config)) *rig {
	t.Helper()
	r := &rig{fakeEngine: newEngine(t), proxy: filepath.Join(shortDir(t), "p.sock"), ended: make(chan error, 1)}
	cfg := proxy.Config{
		Engine: "unix://" + r.socket, Drain: time.Millisecond, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	for _, c := range change {
		c(&cfg)
	}
	p, err := proxy.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	l, err := proxy.Listen(t.Context(), r.proxy)
	if err != nil {
		t.Fatal(err)
	}
	var ctx context.Context
	ctx, r.stop = context.WithCancel(context.WithoutCancel(t.Context()))
	go func() { r.ended <- p.Serve(ctx, l) }()
	t.Cleanup(func() {
		r.stop()
		if err := <-r.ended; err != nil {
			t.Error(err)
		}
		r.ended <- nil // for a test that has waited itself
	})
	return r
}

// peer is a connection to the proxy.
type peer struct {
	*net.UnixConn
	t *testing.T
	r *bufio.Reader
}

func (r *rig) dial(t *testing.T) *peer {
	t.Helper()
	c, err := new(net.Dialer).DialContext(t.Context(), "unix", r.proxy)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(time.Minute)) // so that a failed test ends
	return &peer{c.(*net.UnixConn), t, bufio.NewReader(c)}
}

// send writes bytes, and returns the answer to them.
func (c *peer) send(text string) (status int, body string, header http.Header) {
	c.t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		c.t.Logf("sending: %v", err) // refused before all was read
	}
	method, _, _ := strings.Cut(text, " ")
	res, err := http.ReadResponse(c.r, &http.Request{Method: method})
	if err != nil {
		c.t.Fatalf("%.100q: %v", text, err)
	}
	if foreverers.MatchString(strings.Split(strings.Split(text, " ")[1], "?")[0]) && res.StatusCode < 300 {
		return res.StatusCode, "", res.Header
	}
	defer func() { _ = res.Body.Close() }()
	whole, err := io.ReadAll(res.Body)
	if err != nil {
		c.t.Fatalf("%.100q: %v", text, err)
	}
	return res.StatusCode, string(whole), res.Header
}

func (r *rig) send(t *testing.T, text string) (status int, body string) {
	t.Helper()
	status, body, _ = r.dial(t).send(text)
	return status, body
}

// plain is a request without a body.
func plain(method, target string, headers ...string) string {
	return method + " " + target + " HTTP/1.1\r\nHost: api\r\n" + lines(headers) + "\r\n"
}

// posted is a request with a body.
func posted(target, body string, headers ...string) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: api\r\nContent-Type: application/json\r\nContent-Length: %d\r\n%s\r\n%s",
		target, len(body), lines(headers), body)
}

func lines(headers []string) string {
	if len(headers) == 0 {
		return ""
	}
	return strings.Join(headers, "\r\n") + "\r\n"
}
