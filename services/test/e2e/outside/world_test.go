package outside_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/coreapi"
	. "skandha.dev/services/test/e2e/e2etest"
	"skandha.dev/services/test/irctest"
	"skandha.dev/services/test/mailtest"
	"skandha.dev/services/test/mosquittotest"
)

// world is a deployment of the real mains, and the servers outside.
type world struct {
	t      *testing.T
	s      *System // the bus and the observer
	mail   *mailtest.Servers
	irc    *irctest.Server
	broker *mosquittotest.Broker
	web    *keyed
	crowd  *crowd
	house  *house

	victims []victim
	killed  map[string]int
	cores   []*Binary

	mu     sync.Mutex
	probes int // resolved ones
}

// victim is something that can be killed and comes back.
type victim struct {
	name string
	kill func()
}

const rules = `
rules:
  - name: mail
    match: ['mail (?P<tok>tok\w+z)']
    calls: [{tool: 'email:send', args: {to: ['bob@example.org'], subject: 'hello', text: '{{.tok}}'}}]
  - name: post
    match: ['post (?P<tok>tok\w+z)']
    calls: [{tool: 'http:request', args: {method: POST, url: 'http://WEB/effects', body: '{{.tok}}', idempotency_key: true}}]
  - name: switch
    match: ['switch (?P<tok>tok\w+z)']
    calls: [{tool: 'mqtt:publish', args: {topic: 'house/out', payload: '{{.tok}}'}}]
  - name: ask
    match: ['ask (?P<tok>tok\w+z)']
    text: 'answer to {{.tok}}'
results: {default: {success: 'Done.', failure: '{{.error.code}}: {{.error.message}}'}}
missing: 'For that I would need {{.tool}}.'
fallback: 'I did not understand that.'
`

const config = `
agents:
  main: {permissions: [network.*, email.*, mqtt.*]}
policy:
  - {tool: "email:send", effect: allow}
  - {tool: "mqtt:publish", effect: allow}
  - {tool: "http:request", effect: allow}
mqtt:
  broker: {url: "mqtt://127.0.0.1:%d", publish: ["house/out"]}
email:
  accounts:
    agent:
      address: %s
      password: %q
      ca_file: %s
      imap: {host: 127.0.0.1, port: %d}
      smtp: {host: 127.0.0.1, port: %d}
listeners:
  email: {inbox: {from: ["*@example.org"], start: all, poll: 2s}}
  mqtt:
    house: {topics: {in: {topic: "house/in/+", session_level: 2}}}
  irc:
    net:
      server: %q
      insecure: true
      identify: host
      pace: 1ms
      ping: 2s
      rooms: {"#ops": {session: ops, mention: false}}
      allow: ["*"]
      per_minute: 6000
`

func newWorld(t *testing.T) *world {
	t.Helper()
	mailtest.Need(t)
	w := &world{t: t, killed: map[string]int{}}
	w.mail, w.irc, w.broker = mailtest.Start(t), irctest.Start(t), mosquittotest.Start(t)
	w.web, w.crowd, w.house = newKeyed(t), newCrowd(t, w.irc), newHouse(t, w.broker)
	w.s = New(t, Options{Cores: -1, Providers: -1, Runners: -1})
	w.start()
	w.victims = append(w.victims,
		victim{"bus", func() { w.s.NATS.Kill(); w.s.NATS.Start() }},
		victim{"postfix", w.mail.RestartPostfix},
		victim{"dovecot", w.mail.RestartDovecot},
		victim{"ngircd", func() { w.irc.Kill(); w.irc.Restart(); w.crowd.join() }},
		victim{"mosquitto", func() { w.broker.Kill(); w.broker.Run() }},
		victim{"http", w.web.restart},
	)
	return w
}

// start builds and starts the mains.
func (w *world) start() {
	w.t.Helper()
	dir := w.t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			w.t.Fatal(err)
		}
		return path
	}
	a := w.mail.Account(mailtest.Agent)
	cfg := file("config.yaml", fmt.Sprintf(config, w.broker.Port, a.Address, a.Password, a.CAFile, a.IMAP.Port, a.SMTP.Port,
		w.irc.Addr))
	offline := file("rules.yaml", strings.ReplaceAll(rules, "WEB", w.web.addr))
	state, workspace := filepath.Join(dir, "state"), filepath.Join(dir, "workspace")
	for _, d := range []string{state, workspace} {
		if err := os.Mkdir(d, 0o700); err != nil {
			w.t.Fatal(err)
		}
	}
	paths := map[string]string{}
	for _, m := range []string{"core", "provider", "toolrunner", "listener"} {
		paths[m] = Build(w.t, dir, m+"/cmd/skandha-"+m)
	}
	for _, p := range []struct {
		name, main string
		args       []string
	}{
		{"core-0", "core", []string{"--config", cfg, "--store", filepath.Join(dir, "view-0.db")}},
		{"core-1", "core", []string{"--config", cfg, "--store", filepath.Join(dir, "view-1.db")}},
		{"provider", "provider", []string{"--provider", "offline", "--offline-rules", offline}},
		{"runner-0", "toolrunner", []string{
			"--config", cfg, "--state-dir", state, "--workspace", workspace, "--http-local", w.web.addr,
		}},
		{"runner-1", "toolrunner", []string{
			"--config", cfg, "--state-dir", state, "--workspace", workspace, "--http-local", w.web.addr,
		}},
		{"listener", "listener", []string{"--config", cfg, "--state-dir", state}},
	} {
		b := NewBinary(w.t, p.name, paths[p.main], append(w.s.JoinFlags(p.main), p.args...)...)
		b.Start()
		kind := strings.TrimRight(p.name, "-01")
		if kind == "core" {
			w.cores = append(w.cores, b)
		}
		w.victims = append(w.victims, victim{kind, func() {
			w.keepProbes(b)
			_ = b.End(syscall.SIGKILL)
			b.Start()
		}})
	}
	Eventually(w.t, "cores offer the tools", func() bool {
		for range 2 * len(w.cores) { // any core answers
			tools, err := w.ask(coreapi.VerbTools, struct{}{})
			for _, name := range []string{"email:send", "http:request", "mqtt:publish"} {
				if err != nil || !bytes.Contains(tools, []byte(`"`+name+`"`)) {
					return false
				}
			}
		}
		return true
	})
	w.crowd.await("skandha")
}

var resolved = regexp.MustCompile(`(?m)^skandha_outbox_resolved_total (\d+)`)

// keepProbes adds what a core has resolved since its start, before it is killed.
func (w *world) keepProbes(b *Binary) {
	if !strings.HasPrefix(b.Name, "core") || b.Ready() != nil {
		return
	}
	if m := resolved.FindStringSubmatch(b.Get("/metrics")); m != nil {
		n, _ := strconv.Atoi(m[1])
		w.mu.Lock()
		w.probes += n
		w.mu.Unlock()
	}
}

// inputs lists the inputs that have a token.
func (w *world) inputs(l *Log, token string) (out []Entry) {
	for _, e := range l.Entries {
		if e.Kind() == "input" && bytes.Contains(e.Data, []byte(token)) {
			out = append(out, e)
		}
	}
	return out
}

// settle waits until what was acknowledged has arrived, every turn has ended and nothing waits in the
// outbox. What does not arrive, the judge names.
func (w *world) settle(acknowledged []map[string]bool) {
	w.t.Helper()
	w.s.Tail.Within(Patience, func(l *Log) bool {
		for _, tokens := range acknowledged {
			for token, ok := range tokens {
				if ok && len(w.inputs(l, token)) == 0 {
					return false
				}
			}
		}
		return true
	})
	w.s.Tail.Await(w.t, "every turn ends", func(l *Log) bool { return len(l.Open()) == 0 })
	deadline := time.Now().Add(settleWait)
	for last := ""; ; time.Sleep(200 * time.Millisecond) {
		p, err := w.outbox()
		waiting := 0
		for _, m := range p.Messages {
			if m.State != coreapi.OutboxDead {
				text, _ := json.Marshal(m) // for the failure's message
				waiting, last = waiting+1, string(text)
			}
		}
		if err == nil && waiting == 0 {
			break
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("the outbox is not empty after %v: %v, %d wait, the last is %s", settleWait, err, waiting, last)
		}
	}
	for _, b := range w.cores {
		w.keepProbes(b)
	}
	w.s.Tail.See(func(l *Log) { w.probes += probed(l) })
}

// settleWait is enough to give up a letter that is not found: eight probes of half a minute each.
const settleWait = 15 * time.Minute

func (w *world) outbox() (p coreapi.OutboxPage, err error) {
	reply, err := w.ask(coreapi.VerbOutbox, coreapi.OutboxQuery{Limit: 1000})
	if err == nil {
		err = json.Unmarshal(reply, &p)
	}
	return p, err
}

// ask asks any core.
func (w *world) ask(verb string, question any) (json.RawMessage, error) {
	ctx, cancel := context.WithTimeout(w.t.Context(), 10*time.Second)
	defer cancel()
	caller, err := w.s.Bus.NewCaller()
	if err != nil {
		return nil, err
	}
	defer func() { _ = caller.Close() }()
	body, err := json.Marshal(question)
	if err != nil {
		return nil, err
	}
	return caller.Request(ctx, subject.Service(coreapi.ServiceName, verb), coreapi.ServiceName, body)
}

// probed counts the calls in the log that were probed and have a known outcome.
func probed(l *Log) (n int) {
	calls := map[string]bool{}
	for _, e := range l.Entries {
		if !e.IsCommit() || !bytes.Contains(e.Data, []byte(`"probe":"2`)) {
			continue
		}
		var events []Event
		if json.Unmarshal(e.Data, &events) != nil {
			continue
		}
		for _, ev := range events[1:] {
			var f struct {
				Call  string    `json:"call"`
				Probe time.Time `json:"probe"`
			}
			if ev.Type == "skandha.act.requested.v1" && json.Unmarshal(ev.Data, &f) == nil && !f.Probe.IsZero() {
				calls[f.Call] = true
			}
		}
	}
	for c := range calls {
		if k := l.Calls[c]; k != nil && len(k.Results) > 0 && k.Results[0] != "outcome_unknown" {
			n++
		}
	}
	return n
}

// reported counts, by token, what is reported as unknown (calls, and deliveries that are dead) and the
// calls that are reported as certainly not done.
func (w *world) reported() (unknown, undone map[string]int) {
	unknown, undone = map[string]int{}, map[string]int{}
	p, err := w.outbox()
	if err != nil {
		w.t.Fatal(err)
	}
	for _, m := range p.Messages {
		tok := tokens.FindString(m.Text)
		w.t.Logf("dead: %s via %s: %s", tok, m.Via, m.Error)
		unknown[tok]++
	}
	w.s.Tail.See(func(l *Log) {
		for _, e := range l.Entries {
			if e.Kind() != "input" {
				continue
			}
			tok := tokens.FindString(string(e.Data))
			for _, k := range l.CallsOf(e.Seq) {
				switch r := strings.Join(k.Results, ","); r {
				case "success":
				case "outcome_unknown":
					unknown[tok]++
					w.t.Logf("%s of %s: %s", k.Tool, tok, l.Terminals[e.Seq][0].Answer)
				default: // it was certainly not done, as the model knows
					undone[tok]++
				}
			}
			for _, end := range l.Terminals[e.Seq] {
				if end.Failed != "" {
					w.t.Errorf("the turn of %s failed as %s: %s", tok, end.Failed, end.Reason)
				}
			}
		}
	})
	return unknown, undone
}

var tokens = regexp.MustCompile(`tok\d+x\d+z`)

// count adds up the tokens in texts, once in each.
func count(texts []string) map[string]int {
	out := map[string]int{}
	for _, text := range texts {
		if tok := tokens.FindString(text); tok != "" {
			out[tok]++
		}
	}
	return out
}

// say is a person whose client repeats an input until it is acknowledged.
func say(what string) func(*world, string) bool {
	return func(w *world, token string) bool {
		w.s.Input(subject.Ref{Agent: "main", Session: subject.Session("s-" + token)}, "person",
			event.Input{Text: what + " " + token, ID: token})
		return true
	}
}
