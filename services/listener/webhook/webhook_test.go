package webhook_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/signature"
	"skandha.dev/services/listener/contract"
	"skandha.dev/services/listener/emitter"
	"skandha.dev/services/listener/web"
	"skandha.dev/services/listener/webhook"
	"skandha.dev/services/test/listenertest"
	"skandha.dev/services/test/natstest"
)

// patience is as long as the bus may take.
const patience = 50 * time.Second

var key = []byte("the secret of the tests!")

func secret(key []byte) string { return "whsec_" + base64.StdEncoding.EncodeToString(key) }

// sender calls a listener.
type sender struct {
	url string
	key []byte
	at  time.Time // of the timestamp; zero: now
}

type reply struct {
	status int
	header http.Header
	contract.Receipt
	Field string
	Error string
}

func (s sender) send(ctx context.Context, id, body string) (reply, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, strings.NewReader(body))
	if err != nil {
		return reply{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	at := s.at
	if at.IsZero() {
		at = time.Now()
	}
	req.Header.Set(signature.HeaderID, id)
	req.Header.Set(signature.HeaderTimestamp, strconv.FormatInt(at.Unix(), 10))
	req.Header.Set(signature.HeaderSignature, signature.Sign(s.key, id, at, []byte(body)))
	return do(req)
}

func do(req *http.Request) (reply, error) {
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return reply{}, err
	}
	defer func() { _ = res.Body.Close() }()
	r := reply{status: res.StatusCode, header: res.Header}
	return r, json.NewDecoder(res.Body).Decode(&r)
}

func (s sender) must(t *testing.T, id, body string) reply {
	t.Helper()
	r, err := s.send(natstest.Context(t), id, body)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestConformance(t *testing.T) {
	listenertest.Run(t, func(t *testing.T, _ *journal.Journal) listenertest.Subject {
		l, err := webhook.New("calls",
			webhook.Config{Session: "conformance", Secrets: []string{secret(key)}, Timeout: patience},
			webhook.Deps{Logger: natstest.Logger(t)})
		if err != nil {
			t.Fatal(err)
		}
		srv := httptest.NewServer(l)
		t.Cleanup(srv.Close)
		return listenertest.Subject{
			Listener: l, Tells: true, TakesIDs: true,
			Say: func(ctx context.Context, text, id string) error {
				body, err := json.Marshal(map[string]string{"text": text})
				if err != nil {
					return err
				}
				r, err := sender{url: srv.URL, key: key}.send(ctx, id, string(body))
				if err == nil && (r.status != http.StatusAccepted || r.Sequence == 0 || r.ID != id) {
					err = fmt.Errorf("answered %+v", r)
				}
				return err
			},
		}
	})
}

type rig struct {
	sender
	bus   *journal.Journal
	stats *webhook.Stats
}

func listen(t *testing.T, cfg webhook.Config, b *journal.Journal) *rig {
	t.Helper()
	if cfg.Session == "" && cfg.SessionField == "" {
		cfg.Session = "s"
	}
	if cfg.Secrets == nil && !cfg.Insecure {
		cfg.Secrets = []string{secret(key)}
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = patience
	}
	r := &rig{bus: b, stats: &webhook.Stats{}}
	l, err := webhook.New("calls", cfg, webhook.Deps{Logger: natstest.Logger(t), Stats: r.stats})
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle(l.Path(), l)
	srv := httptest.NewServer(web.Config{}.Guard(mux))
	t.Cleanup(srv.Close)
	if err := l.OnStart(natstest.Context(t),
		emitter.New(b.Bus, l.Name(), &emitter.Stats{}, natstest.Logger(t))); err != nil {
		t.Fatal(err)
	}
	r.sender = sender{url: srv.URL + "/hooks/calls", key: key}
	return r
}

var session = subject.Ref{Agent: "main", Session: "s"}

func TestACallIsAnInput(t *testing.T) {
	r := listen(t, webhook.Config{Mode: event.ModeInterrupt}, natstest.Connect(t, natstest.Start(t)))
	got := r.must(t, "msg_1", `{"text": "hello", "more": [1]}`)
	in := listenertest.Log(t, r.bus, session)
	if got.status != http.StatusAccepted || len(in) != 1 || got.Sequence != in[0].Sequence {
		t.Fatalf("answered %+v, the log holds %+v", got, in)
	}
	if in[0].Text != "hello" || in[0].ID != "msg_1" || in[0].Writer != "calls" || in[0].Source != "webhook:calls" ||
		in[0].Mode != event.ModeInterrupt {
		t.Errorf("the log holds %+v", in[0])
	}
}

func TestARedeliveryIsTheSameInput(t *testing.T) {
	r := listen(t, webhook.Config{}, natstest.Connect(t, natstest.Start(t)))
	first := r.must(t, "msg_1", `{"text": "hello"}`)
	r.at = time.Now().Add(time.Minute) // it is signed anew
	again := r.must(t, "msg_1", `{"text": "hello"}`)
	if again.status != http.StatusAccepted || again.Sequence != first.Sequence {
		t.Errorf("answered %+v, and before %+v", again, first)
	}
	if in := listenertest.Log(t, r.bus, session); len(in) != 1 {
		t.Errorf("the log holds %+v", in)
	}
}

func TestTextAndSessionComeFromWhereTheConfigurationSays(t *testing.T) {
	b := natstest.Connect(t, natstest.Start(t))
	body := `{"action": "opened", "issue": {"title": "It <breaks>", "number": 7}, "repo": "acme/site.io"}`
	for i, c := range []struct {
		cfg     webhook.Config
		text    string
		session subject.Session
	}{
		{webhook.Config{TextField: "/issue/title"}, "It <breaks>", "s"},
		{webhook.Config{TextTemplate: "{{.action}} {{.issue.number}}: {{.issue.title}}"}, "opened 7: It <breaks>", "s"},
		{webhook.Config{TextTemplate: "{{json .issue.number}}"}, "7", "s"},
		{webhook.Config{TextField: "/action", SessionField: "/repo", SessionPrefix: "ci-"}, "opened", "ci-acme-2Fsite-2Eio"},
		{webhook.Config{TextField: "/action", SessionField: "/issue/number"}, "opened", "7"},
	} {
		r := listen(t, c.cfg, b)
		if got := r.must(t, fmt.Sprint("msg_", i), body); got.status != http.StatusAccepted {
			t.Errorf("%+v: answered %+v", c.cfg, got)
			continue
		}
		in := listenertest.Log(t, b, subject.Ref{Agent: "main", Session: c.session})
		if len(in) == 0 || in[len(in)-1].Text != c.text {
			t.Errorf("%+v: session %s holds %+v, want the text %q", c.cfg, c.session, in, c.text)
		}
	}
}

func TestWrongCallsNameTheFieldAndStoreNothing(t *testing.T) {
	b := natstest.Connect(t, natstest.Start(t))
	plain := listen(t, webhook.Config{MaxBody: 1000}, b)
	template := listen(t, webhook.Config{TextTemplate: "{{.a.b}}"}, b)
	endless := listen(t,
		webhook.Config{
			TextTemplate: "{{range .a}}{{range $.a}}{{range $.a}}xxxxxxxxxxxxxxxx{{end}}{{end}}{{end}}", MaxBody: 4000,
		}, b)
	chosen := listen(t, webhook.Config{SessionField: "/to"}, b)
	for name, c := range map[string]struct {
		r      *rig
		body   string
		status int
		field  string
	}{
		"no text":                         {plain, `{"message": "x"}`, 422, "/text"},
		"an empty text":                   {plain, `{"text": ""}`, 422, "/text"},
		"a text that is none":             {plain, `{"text": {"a": 1}}`, 422, "/text"},
		"no JSON":                         {plain, `text=hello`, 400, "body"},
		"two objects":                     {plain, `{"text": "a"}{"text": "b"}`, 400, "body"},
		"no UTF-8":                        {plain, "{\"text\": \"\xff\"}", 400, "body"},
		"a huge body":                     {plain, `{"text": "` + strings.Repeat("x", 1000) + `"}`, 413, "body"},
		"what the template has not":       {template, `{"a": {}}`, 422, "body"},
		"a text without end":              {endless, `{"a": [` + strings.Repeat("1,", 999) + `1]}`, 422, "body"},
		"no session":                      {chosen, `{"text": "x"}`, 422, "/to"},
		"an empty session":                {chosen, `{"text": "x", "to": ""}`, 422, "/to"},
		"a session that is too long":      {chosen, `{"text": "x", "to": "` + strings.Repeat("s", 65) + `"}`, 422, "/to"},
		"a session that becomes too long": {chosen, `{"text": "x", "to": "` + strings.Repeat(".", 22) + `"}`, 422, "/to"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := c.r.must(t, "msg_1", c.body); got.status != c.status || got.Field != c.field || got.Error == "" {
				t.Errorf("answered %+v, want %d with the field %s", got, c.status, c.field)
			}
		})
	}
	if in := listenertest.Log(t, b, session); len(in) != 0 {
		t.Errorf("the log holds %+v", in)
	}
}

func TestForeignCallsAreRejected(t *testing.T) {
	r := listen(t, webhook.Config{}, natstest.Connect(t, natstest.Start(t)))
	forged := r.sender
	forged.key = []byte("the secret of others!!!!")
	if got := forged.must(t, "msg_1", `{"text": "x"}`); got.status != http.StatusUnauthorized ||
		got.Field != signature.HeaderSignature {
		t.Errorf("a forged call is answered %+v", got)
	}
	old := r.sender
	old.at = time.Now().Add(-webhook.Tolerance - time.Minute)
	if got := old.must(t, "msg_1", `{"text": "x"}`); got.status != http.StatusUnauthorized ||
		got.Field != signature.HeaderTimestamp {
		t.Errorf("an old call is answered %+v", got)
	}
	for name, c := range map[string]struct {
		change func(*http.Request)
		status int
		field  string
	}{
		"rebound to another name": {func(r *http.Request) { r.Host = "evil.example:80" }, 421, "Host"},
		"no signature at all":     {func(*http.Request) {}, 400, signature.HeaderID},
		"a form": {
			func(r *http.Request) { r.Header.Set("Content-Type", "application/x-www-form-urlencoded") }, 415, "Content-Type",
		},
		"no content type": {func(r *http.Request) { r.Header.Del("Content-Type") }, 415, "Content-Type"},
		"GET":             {func(r *http.Request) { r.Method = http.MethodGet }, 405, "method"},
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.url, strings.NewReader(`{"text": "x"}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		c.change(req)
		got, err := do(req)
		if err != nil || got.status != c.status || got.Field != c.field {
			t.Errorf("%s: answered %+v, %v; want %d with the field %s", name, got, err, c.status, c.field)
		}
	}
	if in := listenertest.Log(t, r.bus, session); len(in) != 0 {
		t.Errorf("the log holds %+v", in)
	}
	if n := r.stats.Rejected.Load(); n != 6 { // the rebound one did not come so far
		t.Errorf("%d are counted as rejected, want 6", n)
	}
}

func TestSecretsAreChangedWithoutAGap(t *testing.T) {
	next := []byte("the next secret of tests")
	t.Setenv("SKANDHA_TEST_NEXT_SECRET", secret(next))
	r := listen(t, webhook.Config{Secrets: []string{secret(key), "env:SKANDHA_TEST_NEXT_SECRET"}},
		natstest.Connect(t, natstest.Start(t)))
	for i, k := range [][]byte{key, next} {
		r.key = k
		if got := r.must(t, fmt.Sprint("msg_", i), `{"text": "x"}`); got.status != http.StatusAccepted {
			t.Errorf("secret %d: answered %+v", i, got)
		}
	}
}

func TestInsecureTakesCallsWithoutSignature(t *testing.T) {
	r := listen(t, webhook.Config{Insecure: true}, natstest.Connect(t, natstest.Start(t)))
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.url, strings.NewReader(`{"text": "x"}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json; charset=utf-8")
	if got, err := do(req); err != nil || got.status != http.StatusAccepted || got.ID == "" {
		t.Errorf("answered %+v, %v; want it taken under an id that was made up", got, err)
	}
}

func TestWithoutABusTheSenderIsToldToComeAgain(t *testing.T) {
	p := natstest.StartProcess(t, "", 0)
	b := natstest.ConnectURL(t, p.URL())
	r := listen(t, webhook.Config{Timeout: time.Second}, b)
	p.Kill()
	got := r.must(t, "msg_1", `{"text": "hello"}`)
	if got.status != http.StatusServiceUnavailable || got.header.Get("Retry-After") == "" || r.stats.Failed.Load() != 1 {
		t.Fatalf("answered %+v", got)
	}
	p.Restart()
	natstest.Eventually(t, "it is taken",
		func() bool { return r.must(t, "msg_1", `{"text": "hello"}`).status == http.StatusAccepted })
	if in := listenertest.Log(t, b, session); len(in) != 1 {
		t.Errorf("the log holds %+v, want it once", in)
	}
}

func TestACallThatWaitsSurvivesARestartOfTheBus(t *testing.T) {
	p := natstest.StartProcess(t, "", 0)
	b := natstest.ConnectURL(t, p.URL())
	r := listen(t, webhook.Config{}, b)
	r.must(t, "msg_0", `{"text": "before"}`)
	p.Kill()
	answered := make(chan reply, 1)
	go func() {
		got, err := r.send(natstest.Context(t), "msg_1", `{"text": "hello"}`)
		if err != nil {
			t.Error(err)
		}
		answered <- got
	}()
	p.Restart()
	if got := <-answered; got.status != http.StatusAccepted {
		t.Errorf("answered %+v", got)
	}
	if in := listenertest.Log(t, b, session); len(in) != 2 {
		t.Errorf("the log holds %+v", in)
	}
}

// A client that sends its body byte by byte, or never, holds up nobody else.
func TestSlowClientsHoldUpNobody(t *testing.T) {
	r := listen(t, webhook.Config{}, natstest.Connect(t, natstest.Start(t)))
	addr := strings.TrimSuffix(strings.TrimPrefix(r.url, "http://"), "/hooks/calls")
	for range 100 {
		c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		head := "POST /hooks/calls HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" +
			"Content-Length: 100\r\n\r\n{"
		if _, err := io.WriteString(c, head); err != nil {
			t.Fatal(err)
		}
	}
	if got := r.must(t, "msg_1", `{"text": "hello"}`); got.status != http.StatusAccepted {
		t.Errorf("answered %+v", got)
	}
}

func TestABodyThatDoesNotComeWholeIsNothing(t *testing.T) {
	r := listen(t, webhook.Config{Insecure: true}, natstest.Connect(t, natstest.Start(t)))
	addr := strings.TrimSuffix(strings.TrimPrefix(r.url, "http://"), "/hooks/calls")
	c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	body := `{"text": "whole"}`
	if _, err := fmt.Fprintf(c,
		"POST /hooks/calls HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		len(body)+1, body); err != nil {
		t.Fatal(err)
	}
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	_, _ = b.ReadFrom(res.Body)
	_ = res.Body.Close()
	if res.StatusCode != http.StatusBadRequest || len(listenertest.Log(t, r.bus, session)) != 0 {
		t.Errorf("answered %s %s", res.Status, b.String())
	}
}

func TestConfigurationsThatAreRefused(t *testing.T) {
	good := webhook.Config{Session: "s", Secrets: []string{secret(key)}}
	for want, change := range map[string]func(*webhook.Config){
		"secrets is empty":                  func(c *webhook.Config) { c.Secrets = nil },
		"insecure and secrets are both set": func(c *webhook.Config) { c.Insecure = true },
		"secrets[0]":                        func(c *webhook.Config) { c.Secrets = []string{"whsec_c2hvcnQ="} },
		"is not set":                        func(c *webhook.Config) { c.Secrets = []string{"env:SKANDHA_NO_SUCH_SECRET"} },
		"no such file":                      func(c *webhook.Config) { c.Secrets = []string{"file:/no/such/secret"} },
		"session and":                       func(c *webhook.Config) { c.Session = "" },
		"session:":                          func(c *webhook.Config) { c.Session = "a b" },
		"session_field":                     func(c *webhook.Config) { c.Session, c.SessionField = "", "to" },
		"session_prefix":                    func(c *webhook.Config) { c.SessionPrefix = "x" },
		"text_field":                        func(c *webhook.Config) { c.TextField = "text" },
		"text_template":                     func(c *webhook.Config) { c.TextTemplate = "{{" },
		"are both set":                      func(c *webhook.Config) { c.TextField, c.TextTemplate = "/a", "b" },
		"max_body":                          func(c *webhook.Config) { c.MaxBody = 4<<20 + 1 },
		"timeout":                           func(c *webhook.Config) { c.Timeout = time.Millisecond },
		"agent or mode":                     func(c *webhook.Config) { c.Mode = "later" },
		"agent or mode: inv":                func(c *webhook.Config) { c.Agent = "a.b" },
	} {
		c := good
		change(&c)
		if _, err := webhook.New("calls", c, webhook.Deps{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v; want %q", c, err, want)
		} else if strings.Contains(err.Error(), "c2hvcnQ") {
			t.Errorf("the error quotes the secret: %v", err)
		}
	}
}

func TestASenderIsToldWhyNothingIsTaken(t *testing.T) {
	srv := natstest.Start(t)
	core := natstest.Connect(t, srv)
	r := listen(t, webhook.Config{}, natstest.Connect(t, srv))
	r.must(t, "before", `{"text": "x"}`) // subscribes to the cores' beacons
	for name, c := range map[string]struct {
		says   bus.Beacon
		status int
		text   string
	}{
		"too much waits": {bus.Beacon{Backlog: 7, Limit: 7}, http.StatusTooManyRequests, "too many inputs are waiting"},
		"the disk is full": {
			bus.Beacon{Storage: &bus.StorageFault{Reason: "no space left on device"}},
			http.StatusServiceUnavailable,
			"the bus cannot store: no space left on device; it was not stored",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var got reply
			natstest.Eventually(t, "the call is refused", func() bool {
				if err := core.PublishBeacon(natstest.Context(t), c.says); err != nil {
					t.Fatal(err)
				}
				got = r.must(t, "id", `{"text": "x"}`)
				return got.status == c.status
			})
			if got.header.Get("Retry-After") == "" || !strings.Contains(got.Error, c.text) {
				t.Errorf("answered %+v", got)
			}
		})
	}
}

// Other data in the body does not count against the longest text.
func TestTheTextIsBoundedNotTheBody(t *testing.T) {
	r := listen(t, webhook.Config{}, natstest.Connect(t, natstest.Start(t)))
	longest := strings.Repeat(`\u0061`, event.MaxTextBytes)
	if got := r.must(t, "id", `{"text": "`+longest+`", "more": "x"}`); got.status != http.StatusAccepted {
		t.Errorf("the longest text: %+v", got)
	}
	if got := r.must(t, "id2", `{"text": "`+longest+`a"}`); got.status != http.StatusUnprocessableEntity {
		t.Errorf("a longer one: %d", got.status)
	}
}
