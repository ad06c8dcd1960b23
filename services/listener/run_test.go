package listener_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/listener"
	"skandha.dev/services/listener/contract"
	"skandha.dev/services/test/listenertest"
	"skandha.dev/services/test/natstest"
)

// running is a service that runs.
type running struct {
	*listener.Service
	addr   string
	cancel context.CancelFunc
	ended  chan error
}

func run(t *testing.T, b *journal.Journal, config string, deps listener.Deps) *running {
	t.Helper()
	cfg, err := listener.ParseConfig([]byte("listeners:\n" + config))
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan string, 1)
	deps.Bus, deps.Logger, deps.Served = b, natstest.Logger(t), func(addr string) { served <- addr }
	s, err := listener.New(cfg, listener.Options{Drain: natstest.Patience}, deps)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{Service: s, cancel: cancel, ended: make(chan error, 1)}
	go func() { r.ended <- s.Run(ctx) }()
	t.Cleanup(cancel)
	if strings.Contains(config, "webhook") || strings.Contains(config, "websocket") {
		r.addr = <-served
	}
	return r
}

func (r *running) end(t *testing.T) error {
	t.Helper()
	select {
	case err := <-r.ended:
		return err
	case <-natstest.Context(t).Done():
		t.Fatal("it does not end")
		return nil
	}
}

func post(t *testing.T, url, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(b)
}

func ref(session string) subject.Ref {
	return subject.Ref{Agent: "main", Session: subject.Session(session)}
}

func TestEveryListenerWritesUnderItsName(t *testing.T) {
	b := natstest.Connect(t, natstest.Start(t))
	in, out := io.Pipe()
	r := run(t, b, `
  http: {listen: "127.0.0.1:0"}
  stdin: {lines: {session: all}}
  webhook: {calls: {session: all, insecure: true}}
  cron: {clock: {session: all, entries: {tick: {schedule: "@every 1s", text: tick}}}}
`, listener.Deps{Stdin: in})
	if _, err := io.WriteString(out, "a line\n"); err != nil {
		t.Fatal(err)
	}
	natstest.Eventually(t, "HTTP is served", func() bool {
		code, _ := post(t, "http://"+r.addr+"/hooks/calls", `{"text": "a call"}`)
		return code == http.StatusAccepted
	})
	said := map[subject.Writer]string{}
	natstest.Eventually(t, "all three", func() bool {
		for _, in := range listenertest.Log(t, b, ref("all")) {
			said[in.Writer] = in.Text
		}
		return len(said) == 3
	})
	if said["lines"] != "a line" || said["calls"] != "a call" || said["clock"] != "tick" {
		t.Errorf("the writers said %v", said)
	}
	natstest.Eventually(t, "it is ready", func() bool { return r.Ready() == nil })
	natstest.Eventually(t, "the inputs are counted", func() bool { // a moment after they are in the log
		c := r.Counters()
		return c["listener_inputs"] >= 3 && c["listener_cron_occurred"] >= 1
	})
	if code, body := post(t, "http://"+r.addr+"/hooks/others", `{}`); code != http.StatusNotFound {
		t.Errorf("a hook that is not there answers %d %s", code, body)
	}
	r.cancel()
	if err := r.end(t); err != nil {
		t.Errorf("it ended with %v", err)
	}
}

func TestItEndsWithItsInput(t *testing.T) {
	b := natstest.Connect(t, natstest.Start(t))
	var acks strings.Builder
	r := run(t, b, "  stdin: {lines: {session: s, acks: true}}\n",
		listener.Deps{Stdin: strings.NewReader("one\ntwo\n"), Stdout: &acks})
	if err := r.end(t); err != nil {
		t.Errorf("it ended with %v", err)
	}
	if in := listenertest.Log(t, b, ref("s")); len(in) != 2 {
		t.Errorf("the log holds %+v", in)
	}
	var last struct {
		Line     int
		Sequence uint64
	}
	lines := strings.Split(strings.TrimSpace(acks.String()), "\n")
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil || last.Line != 2 || last.Sequence == 0 {
		t.Errorf("the acks are %q, %v", acks.String(), err)
	}
}

func TestItEndsWithAnErrorIfALineWasWrong(t *testing.T) {
	b := natstest.Connect(t, natstest.Start(t))
	r := run(t, b, "  stdin: {lines: {json: true}}\n", listener.Deps{Stdin: strings.NewReader("nonsense\n")})
	if err := r.end(t); !errors.Is(err, contract.ErrInvalid) {
		t.Errorf("it ended with %v", err)
	}
}

func TestTheEndOfTheInputEndsNobodyElse(t *testing.T) {
	b := natstest.Connect(t, natstest.Start(t))
	r := run(t, b,
		"  http: {listen: \"127.0.0.1:0\"}\n  stdin: {lines: {}}\n  webhook: {calls: {session: s, insecure: true}}\n",
		listener.Deps{Stdin: strings.NewReader("one\n")})
	natstest.Eventually(t, "the line is taken", func() bool { return len(listenertest.Log(t, b, ref("lines"))) == 1 })
	natstest.Eventually(t, "calls are taken", func() bool { // the address is there a moment before the listener
		code, _ := post(t, "http://"+r.addr+"/hooks/calls", `{"text": "x"}`)
		return code == http.StatusAccepted
	})
	r.cancel()
	if err := r.end(t); err != nil {
		t.Errorf("it ended with %v", err)
	}
}

func TestItStartsWithoutABusAndIsNotReady(t *testing.T) {
	p := natstest.StartProcess(t, "", 0)
	b := natstest.ConnectURL(t, p.URL())
	p.Kill()
	natstest.Eventually(t, "the connection is lost", func() bool { return !b.Connected() })
	r := run(t, b,
		"  http: {listen: \"127.0.0.1:0\"}\n  webhook: {calls: {session: s, insecure: true, timeout: 1s}}\n"+
			"  cron: {clock: {session: s}}\n", listener.Deps{})
	natstest.Eventually(t, "it answers", func() bool {
		code, _ := post(t, "http://"+r.addr+"/hooks/calls", `{"text": "x"}`)
		return code == http.StatusServiceUnavailable
	})
	if r.Ready() == nil {
		t.Error("it says it is ready")
	}
	p.Restart()
	natstest.Eventually(t, "it is ready", func() bool { return r.Ready() == nil })
	r.cancel()
	if err := r.end(t); err != nil {
		t.Errorf("it ended with %v", err)
	}
}

func TestAPortThatIsTakenIsAnError(t *testing.T) {
	b := natstest.Connect(t, natstest.Start(t))
	first := run(t, b, "  http: {listen: \"127.0.0.1:0\"}\n  webhook: {calls: {session: s, insecure: true}}\n",
		listener.Deps{})
	cfg, err := listener.ParseConfig([]byte(
		fmt.Sprintf("listeners:\n  http: {listen: %q}\n  webhook: {calls: {session: s, insecure: true}}\n", first.addr)))
	if err != nil {
		t.Fatal(err)
	}
	second, err := listener.New(cfg, listener.Options{}, listener.Deps{Bus: b, Logger: natstest.Logger(t)})
	if err == nil {
		err = second.Run(natstest.Context(t))
	}
	if err == nil || !strings.Contains(err.Error(), "listeners.http.listen") {
		t.Errorf("it ended with %v", err)
	}
}

// broken is a listener of somebody else that does not start.
type broken struct{ stopped bool }

func (*broken) Name() subject.Writer                            { return "broken" }
func (*broken) OnStart(context.Context, contract.Emitter) error { return errors.New("no antenna") }
func (b *broken) OnStop(context.Context) error                  { b.stopped = true; return nil }

// foreign is one that works.
type foreign struct {
	stopped bool
	emitted chan error
}

func (*foreign) Name() subject.Writer { return "foreign" }
func (f *foreign) OnStart(ctx context.Context, e contract.Emitter) error {
	go func() {
		_, err := e.EmitInput(ctx, contract.Input{Agent: "main", Session: "s", Text: "from afar"})
		f.emitted <- err
	}()
	return nil
}
func (f *foreign) OnStop(context.Context) error { f.stopped = true; return nil }

func TestListenersOfOthersRunBesideTheConfiguredOnes(t *testing.T) {
	b := natstest.Connect(t, natstest.Start(t))
	f := &foreign{emitted: make(chan error, 1)}
	r := run(t, b, "  cron: {clock: {session: s}}\n", listener.Deps{Extra: []listener.Listener{f}})
	if err := <-f.emitted; err != nil {
		t.Fatal(err)
	}
	if in := listenertest.Log(t, b, ref("s")); len(in) != 1 || in[0].Writer != "foreign" {
		t.Errorf("the log holds %+v", in)
	}
	r.cancel()
	if err := r.end(t); err != nil || !f.stopped {
		t.Errorf("it ended with %v; the listener was stopped: %t", err, f.stopped)
	}
}

func TestOneThatDoesNotStartStopsThoseThatHave(t *testing.T) {
	b := natstest.Connect(t, natstest.Start(t))
	f, bad := &foreign{emitted: make(chan error, 1)}, &broken{}
	r := run(t, b, "", listener.Deps{Extra: []listener.Listener{f, bad}})
	if err := r.end(t); err == nil || !strings.Contains(err.Error(), "broken: no antenna") || !f.stopped || bad.stopped {
		t.Errorf("it ended with %v; stopped: %t %t", err, f.stopped, bad.stopped)
	}
}

func TestTwoOfOneNameAreRefused(t *testing.T) {
	b := natstest.Connect(t, natstest.Start(t))
	_, err := listener.New(listener.Config{}, listener.Options{},
		listener.Deps{Bus: b, Extra: []listener.Listener{&broken{}, &broken{}}})
	if err == nil || !strings.Contains(err.Error(), "duplicate listener broken") {
		t.Errorf("New: %v", err)
	}
}
