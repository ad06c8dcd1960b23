package system_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/skandha/system"
	"skandha.dev/services/test/natstest"
)

// call calls a webhook and returns what it answers.
func call(t *testing.T, url, id, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("webhook-id", id)
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

func TestListenersOfTheConfigurationRunInTheSystem(t *testing.T) {
	addr := fmt.Sprintf("127.0.0.1:%d", natstest.FreePort(t))
	file := filepath.Join(t.TempDir(), "config.yaml")
	config := fmt.Sprintf(`
agents: {main: {}}
listeners:
  http: {listen: %q}
  stdin: {lines: {session: heard}}
  webhook: {calls: {session: heard, insecure: true}}
  cron: {clock: {session: heard, entries: {tick: {schedule: "0 0 1 1 *", text: tick}}}}
`, addr)
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := system.Start(natstest.Context(t), system.Config{
		Data: t.TempDir(), ConfigFile: file, Sync: "relaxed", Provider: "offline",
		Stdin: strings.NewReader("hello from standard input\n"), Log: natstest.Logger(t),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	b := natstest.Join(t, s, "looker")
	ref := subject.Ref{Agent: "main", Session: "heard"}
	ends := make(chan string, 16)
	if _, err := b.Conn().Subscribe(ref.All(), func(m *nats.Msg) {
		if e, err := event.Decode(m.Data); err == nil && (e.Type == event.TypeRecorded || e.Type == event.TypeTurnFailed) {
			ends <- string(e.Type) + " " + string(e.Data)
		}
	}); err != nil {
		t.Fatal(err)
	}
	if err := b.Conn().Flush(); err != nil {
		t.Fatal(err)
	}
	end := func(want ...string) {
		t.Helper()
		for {
			select {
			case got := <-ends:
				all := true
				for _, w := range want {
					all = all && strings.Contains(got, w)
				}
				if all {
					return
				}
			case <-natstest.Context(t).Done():
				t.Fatalf("no terminal event with %q", want)
			}
		}
	}
	url := "http://" + addr + "/hooks/calls"
	natstest.Eventually(t, "HTTP is served", func() bool {
		c, err := new(net.Dialer).DialContext(t.Context(), "tcp", addr)
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	})
	natstest.Eventually(t, "a call is taken", func() bool { // the listener is there a moment after its address
		code, body := call(t, url, "msg_1", `{"text": "what is 2+2?"}`)
		if code != http.StatusAccepted && code != http.StatusServiceUnavailable {
			t.Fatalf("answered %d %s", code, body)
		}
		return code == http.StatusAccepted
	})
	end(string(event.TypeRecorded), "2+2")
	// The same id with another text is not the same message to the log, but it is to
	// the session.
	if code, body := call(t, url, "msg_1", `{"text": "what is 3+3?"}`); code != http.StatusAccepted {
		t.Fatalf("answered %d %s", code, body)
	}
	end(string(event.TypeTurnFailed), string(event.FailDuplicate), "msg_1")
	wrote := func(who string) (n int) {
		for m, err := range b.Messages(natstest.Context(t), ref, 0) {
			if err != nil {
				t.Fatal(err)
			}
			if c, err := subject.ParseCause(m.Subject); err == nil && string(c.Writer) == who {
				n++
			}
		}
		return n
	}
	natstest.Eventually(t, "the line is in the log", func() bool { return wrote("lines") == 1 })
	if n := wrote("calls"); n != 2 {
		t.Errorf("there are %d calls in the log, want 2", n)
	}
}

func TestListenersThatAreWrongAreNamedAtTheStart(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte("listeners:\n  webhook: {calls: {session: s}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := system.Start(natstest.Context(t),
		system.Config{Data: t.TempDir(), ConfigFile: file, Sync: "relaxed", Provider: "offline", Log: natstest.Logger(t)})
	if err == nil {
		s.Stop()
	}
	if err == nil || !strings.Contains(err.Error(), "listeners.webhook.calls.secrets") {
		t.Errorf("Start: %v", err)
	}
}
