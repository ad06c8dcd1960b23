package worstcase

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/plugin"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/client"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/executor"
	"skandha.dev/services/internal/executor/engine"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/mqttclient"
	"skandha.dev/services/internal/rights"
	"skandha.dev/services/provider/adapter"
	"skandha.dev/services/sandbox/driver"
	"skandha.dev/services/sandbox/selection"
	"skandha.dev/services/skandha/system"
	"skandha.dev/services/test/natstest"
	"skandha.dev/services/test/obedient"
	"skandha.dev/services/toolrunner/tools/web"
)

// agents is how many agents there are. Each attack and each task has one, because an agent
// remembers what it has read in other sessions.
const agents = 300

// config has no policy: the shipped one holds, unless a test adds one.
func config() string {
	var b strings.Builder
	b.WriteString("mqtt: {embedded: {publish: [house/+/set]}}\n" +
		"notify: {rules: [{on: [approval], via: mailer, to: ada}]}\nagents:\n  other: {}\n")
	for i := range agents {
		fmt.Fprintf(&b, "  agent-%03d: {}\n", i)
	}
	return b.String()
}

// world is a system, and all that it could reach.
type world struct {
	t         *testing.T
	sys       *system.System
	bus       *journal.Journal
	client    *client.Client
	workspace string
	sandboxed bool
	url       string // of the web server
	leaving   map[string]bool
	more      plugin.Handlers // of the plugin
	policy    string          // in the configuration

	mu        sync.Mutex
	pages     map[string]string   // that the web server has, by path
	found     map[string]string   // what a search finds, by query
	said      map[string]string   // what the plugin's tool answers, by question
	arrived   []string            // requests at the web server
	published []string            // messages of MQTT
	delivered map[string][]string // messages of the listener, by recipient
	writers   map[string]bool     // of causes, and of whose sessions: "agent.session writer"
}

func newWorld(t *testing.T, prepare ...func(*world)) *world {
	t.Helper()
	w := &world{
		t: t, pages: map[string]string{}, found: map[string]string{}, said: map[string]string{},
		delivered: map[string][]string{}, writers: map[string]bool{}, workspace: filepath.Join(t.TempDir(), "workspace"),
	}
	server := httptest.NewServer(http.HandlerFunc(w.serve))
	t.Cleanup(server.Close)
	w.url = server.URL
	for _, f := range prepare {
		f(w)
	}
	host := strings.TrimPrefix(server.URL, "http://")
	file := filepath.Join(t.TempDir(), "config.yaml")
	w.write(file, config()+w.policy)
	addr := fmt.Sprintf("127.0.0.1:%d", natstest.FreePort(t))
	cfg := system.Config{
		Data: t.TempDir(), ConfigFile: file, Workspace: w.workspace, Sync: "relaxed", MQTT: addr,
		Models: []adapter.Adapter{&obedient.Model{}}, Requests: web.Hosts{Allow: []string{host}}, Slots: 64,
		Web: web.Config{Search: "searxng", SearchURL: server.URL + "/engine", FetchLocal: []string{host}},
		Log: natstest.Logger(t),
	}
	if flags, ok := w.sandbox(); ok {
		w.sandboxed, cfg.Sandbox = true, &system.Sandbox{Flags: flags}
	}
	var err error
	if w.sys, err = system.Start(natstest.Context(t), cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.sys.Stop)
	w.bus = natstest.Join(t, w.sys, "world")
	if w.client, err = client.New(w.bus, "ada", natstest.Logger(t)); err != nil {
		t.Fatal(err)
	}
	w.watch(mqttclient.Broker{URL: "mqtt://" + addr, User: "device", Password: "file:" + w.sys.MQTTPasswordFile()})
	mailer := natstest.Join(t, w.sys, "mailer")
	w.background("gateway", func(ctx context.Context) error { return w.deliver(ctx, mailer) })
	w.background("plugin", w.plugin)
	w.leaving = map[string]bool{}
	natstest.Eventually(t, "all tools are known", func() bool {
		var all []coreapi.ToolInfo
		if err := w.client.Ask(natstest.Context(t), coreapi.VerbTools, nil, &all); err != nil {
			return false
		}
		plugins := false
		for _, i := range all {
			w.leaving[i.Spec.Name] = leaves(i.Spec)
			plugins = plugins || i.Spec.Name == "desk:post"
		}
		return plugins
	})
	return w
}

// leaves reports whether a tool's effects leave the machine or cannot be undone.
func leaves(s tool.Spec) bool {
	for _, p := range s.Permissions {
		if strings.HasPrefix(p, "network.") || p == "fs.delete" {
			return true
		}
	}
	return s.Risk == tool.RiskHigh
}

// sandbox returns how bubblewrap makes sandboxes, if it works here.
func (w *world) sandbox() (selection.Flags, bool) {
	dir, err := os.MkdirTemp("/var/tmp", "skandha-worstcase-")
	if err == nil {
		w.t.Cleanup(func() { _ = os.RemoveAll(dir) })
		err = os.Chmod(dir, 0o755) // the users that sandboxes of root run as see it
	}
	if err != nil {
		w.t.Fatal(err)
	}
	flags := selection.Flags{Driver: selection.Bwrap, Dir: dir, Memory: 256, Packages: true, Index: w.url + "/simple"}
	d, _, err := flags.Make("test", natstest.Logger(w.t))
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = d.Close() }() // it has started nothing
	_, err = d.Report(natstest.Context(w.t))
	if errors.Is(err, driver.ErrUnavailable) && os.Getenv("SKANDHA_REQUIRE") != "all" {
		w.t.Logf("SKIPPED, what runs in a sandbox: %v", err)
		return flags, false
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return flags, true
}

func (w *world) write(path, content string) {
	w.t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil { //nolint:gosec // files of a test
		w.t.Fatal(err)
	}
}

// background runs f until the end of the test, before the system stops.
func (w *world) background(name string, f func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := f(ctx); err != nil && ctx.Err() == nil {
			w.t.Errorf("%s: %v", name, err)
		}
	}()
	w.t.Cleanup(func() { cancel(); <-done })
}

// serve is the web server: pages, a search engine, and whatever else is requested.
func (w *world) serve(out http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	query := r.URL.Query().Get("q")
	w.mu.Lock()
	w.arrived = append(w.arrived, strings.TrimSpace(r.Method+" "+r.URL.String()+" "+string(body)+" "+r.Header.Get("X-Loot")))
	page, snippet := w.pages[r.URL.Path], w.found[query]
	w.mu.Unlock()
	if strings.HasPrefix(r.URL.Path, "/engine/") {
		out.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(out).Encode(map[string]any{"results": []map[string]string{
			{"title": "A result", "url": "https://example.org/", "content": snippet, "engine": "test"},
		}})
		return
	}
	if to, is := strings.CutPrefix(page, "redirect "); is {
		http.Redirect(out, r, to, http.StatusFound)
		return
	}
	out.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if strings.HasPrefix(page, "<") {
		out.Header().Set("Content-Type", "text/html; charset=utf-8")
	}
	_, _ = io.WriteString(out, page)
}

// watch subscribes to all that is published by MQTT, and to all causes.
func (w *world) watch(b mqttclient.Broker) {
	w.t.Helper()
	ctx := natstest.Context(w.t)
	c, err := b.Dial(ctx, mqttclient.Options{ClientID: "lamp", Clean: true, Receive: func(m mqttclient.Message) {
		m.Ack()
		w.mu.Lock()
		defer w.mu.Unlock()
		w.published = append(w.published, m.Topic+" "+string(m.Payload))
	}})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { c.Close(0) })
	if err := c.Subscribe(ctx, map[string]byte{"house/#": 1, "alarm/#": 1}); err != nil {
		w.t.Fatal(err)
	}
	if _, err := w.bus.Conn().Subscribe("agent.*.*.sense.*.*", func(m *nats.Msg) {
		if p := strings.Split(m.Subject, "."); p[4] != "timer" {
			w.mu.Lock()
			w.writers[p[1]+"."+p[2]+" "+p[4]+" "+p[5]] = true
			w.mu.Unlock()
		}
	}); err != nil {
		w.t.Fatal(err)
	}
	if err := w.bus.Conn().Flush(); err != nil {
		w.t.Fatal(err)
	}
}

// deliver is the listener to which answers of the writer "mailer" are given.
func (w *world) deliver(ctx context.Context, b *journal.Journal) error {
	work := func(_ context.Context, q executor.Request, _ func(string)) executor.Answer {
		var d tool.Delivery
		res := tool.OK(nil)
		if err := json.Unmarshal(q.Tool.Args, &d); err != nil {
			res = tool.Failure(tool.CodeInvalidArgs, err.Error())
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.delivered[d.To] = append(w.delivered[d.To], d.Text)
		return executor.Answer{Result: &res}
	}
	return engine.Serve(ctx, b, engine.Config{
		Kind: subject.Runner, Service: "listener", Logger: natstest.Logger(w.t), DrainTimeout: 100 * time.Millisecond,
		Work: work, Offer: engine.Offer{Tools: []tool.Spec{{
			Name: tool.Deliverer("mailer"), Description: "delivers", Args: json.RawMessage(`{"type":"object"}`),
			Internal: true, TimeoutMS: 5000,
		}}},
	})
}

// plugin is somebody else's: a tool that sends, one that answers from elsewhere, one that says that
// it does not, one for services alone, one that the agent lacks the permission for, and a listener.
func (w *world) plugin(ctx context.Context) error {
	type question struct {
		Of string `json:"of"`
	}
	type letter struct {
		To   string `json:"to"`
		Body string `json:"body"`
	}
	answer := func(_ context.Context, q question) (string, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.said[q.Of], nil
	}
	send := func(ctx context.Context, l letter) (string, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, l.To, strings.NewReader(l.Body))
		if err != nil {
			return "", err
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			return "", err
		}
		return res.Status, res.Body.Close()
	}
	charter := rights.Local("desk")
	charter.Listeners = append(charter.Listeners, "doorbell")
	at, err := w.sys.Invite(ctx, charter)
	if err != nil {
		return err
	}
	return plugin.Serve(ctx, plugin.Manifest{Name: "desk", Version: "1.0.0"}, append(w.more, plugin.Handlers{
		plugin.Tool("desk:post", "Posts a letter.", send, plugin.Permissions("network.request"), plugin.Scope("to")),
		plugin.Tool("desk:hidden_post", "Posts a letter for services.", send, plugin.Internal()),
		plugin.Tool("desk:mail", "Mails a letter.", send, plugin.Permissions("mail.send")),
		plugin.Tool("desk:ask", "Answers a question from elsewhere.", answer, plugin.Permissions("network.request")),
		plugin.Tool("desk:look", "Answers a question.", answer),
		plugin.Listen("doorbell", func(ctx context.Context, _ *plugin.Emitter) error {
			<-ctx.Done()
			return nil
		}),
	}...), plugin.WithConfig(bus.Config{URL: at, Name: "desk"}), plugin.WithLogger(natstest.Logger(w.t)))
}
