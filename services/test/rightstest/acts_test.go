package rightstest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/event"
	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/plugin"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/audit"
	"skandha.dev/services/internal/client"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/rights"
	"skandha.dev/services/skandha/system"
	"skandha.dev/services/test/natstest"
)

// running is a system with rights, and a plugin whose rights others want.
type running struct {
	testing.TB
	sys    *system.System
	whole  *client.Client // who may do everything
	runner subject.Instance
	data   string // the directory
}

func run(t testing.TB) *running {
	t.Helper()
	return runWith(t, quiet, "")
}

// runWith runs a system that logs there, with a configuration file; none if it is empty.
func runWith(t testing.TB, log *slog.Logger, config string) *running {
	t.Helper()
	data := t.TempDir()
	s, err := system.Start(natstest.Context(t), system.Config{
		Data: data, ConfigFile: config, Sync: "relaxed", Provider: "offline", Log: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	r := &running{TB: t, sys: s, data: data}
	if r.whole, err = client.New(natstest.Join(t, s, "witness"), "witness", quiet); err != nil {
		t.Fatal(err)
	}
	var st coreapi.Status
	if err := r.whole.Ask(natstest.Context(t), coreapi.VerbStatus, nil, &st); err != nil {
		t.Fatal(err)
	}
	for _, e := range st.Executors {
		if e.Service == "toolrunner" {
			r.runner = e.Instance
		}
	}
	return r
}

// invite makes credentials and returns the configuration that connects with them.
func (r *running) invite(c rights.Charter) bus.Config {
	r.Helper()
	at, err := r.sys.Invite(natstest.Context(r), c)
	if err != nil {
		r.Fatal(err)
	}
	return bus.Config{URL: at, Name: string(c.Name), Logger: quiet}
}

// plain connects as a plain client of NATS.
func (r *running) plain(c bus.Config) *nats.Conn {
	r.Helper()
	host, token := c.URL, ""
	if before, after, ok := strings.Cut(strings.TrimPrefix(c.URL, "nats://"), "@"); ok {
		host, token = after, before
	}
	nc, err := nats.Connect("nats://"+host, nats.UserJWT(func() (string, error) { return token, nil },
		func([]byte) ([]byte, error) { return nil, nil }), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}),
		nats.Timeout(natstest.Patience), nats.NoReconnect())
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(nc.Close)
	return nc
}

// turn says something and returns how it ended.
func (r *running) turn(session subject.Session, text string) event.Recorded {
	r.Helper()
	ref := subject.Ref{Agent: "main", Session: session}
	items, err := r.whole.Follow(natstest.Context(r), ref)
	if err != nil {
		r.Fatal(err)
	}
	if _, err := r.whole.Say(natstest.Context(r), ref, event.Input{Text: text}); err != nil {
		r.Fatal(err)
	}
	var end event.Recorded
	for i := range items {
		if i.Event.Type == event.TypeRecorded {
			if err := i.Event.DataAs(&end); err != nil {
				r.Fatal(err)
			}
			return end
		}
	}
	r.Fatal("the turn has no end")
	return end
}

// policy starts the plugin that others want to be.
func (r *running) policy() {
	r.Helper()
	c := r.invite(rights.Charter{Name: "no-secrets", Hooks: []string{"before_act:judge"}})
	ctx, cancel := context.WithCancel(context.Background())
	active, done := make(chan struct{}), make(chan error, 1)
	go func() {
		done <- plugin.Serve(ctx, plugin.Manifest{Name: "no-secrets", Version: "1.0.0"}, plugin.Handlers{
			plugin.BeforeAct(func(context.Context, *plugin.HookCall[hook.ActData]) (plugin.Reply, error) {
				return plugin.Deny("nothing may be done"), nil
			}),
		}, plugin.WithConfig(c), plugin.WithLogger(quiet), plugin.OnState(func(s plugin.LeaseState, _ string) {
			if s == plugin.Active {
				close(active)
			}
		}))
	}()
	select {
	case <-active:
	case err := <-done:
		r.Fatalf("the policy ended: %v", err)
	}
	r.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			r.Errorf("the policy ended with %v", err)
		}
	})
}

const mark = "ATTACK"

// attacks are subjects and bodies that an identity may not send. Each succeeds for somebody who may do
// everything.
func (r *running) attacks() map[string]string {
	return map[string]string{
		"$JS.API.DIRECT.GET.SESSIONS":               `{"seq":1}`,
		"$JS.API.STREAM.MSG.GET.SESSIONS":           `{"seq":1}`,
		"$JS.API.STREAM.INFO.SESSIONS":              ``,
		"service.uibridge.link":                     ``,
		"agent.main.s1.person.input.owner":          `{"text":"` + mark + `"}`,
		"agent.main.s1.person.confirmation.owner":   `{"confirmation_id":"` + mark + `","hash":"x","approved":true}`,
		"agent.main.s1.sense.confirmation.ui-owner": `{"confirmation_id":"` + mark + `","hash":"x","approved":true}`,
		"agent.main.s1.sense.input.victim":          `{"text":"` + mark + `"}`,
		"agent.main.s1.sense.cancel.own":            `{"input_id":"` + mark + `"}`,
		"agent.main.s1.sense.command.own":           `{"name":"` + mark + `"}`,
		"agent.main.s1.sense.timer.core":            `{"id":"` + mark + `"}`,
		"occurred.cron." + mark:                     `{}`,
		"runner." + string(r.runner):                `{"op":"run","call":"` + mark + `"}`,
		"plugin.unregister.no-secrets":              `{"instance":"x","force":true,"reason":"` + mark + `"}`,
		"service.admin.plugin":                      `{"op":"suspend","plugin":"no-secrets","reason":"` + mark + `"}`,
		"service.admin.identities":                  `{"op":"revoke","name":"no-secrets","caller":"` + mark + `"}`,
		"$KV.plugins.manifest.ghost":                mark,
		"$KV.identities.ghost":                      mark,
		"announce.runner." + mark:                   `{"instance":"` + mark + `","kind":"runner"}`,
		"agent.main.s1.commit":                      mark,
		"$JS.API.CONSUMER.MSG.NEXT.SESSIONS.core":   `{"batch":1}`,
		"$JS.API.STREAM.PURGE.SESSIONS":             ``,
		"$JS.API.STREAM.DELETE.SESSIONS":            ``,
		"$JS.API.CONSUMER.DELETE.TIMERS.fired":      ``,
		"$JS.API.CONSUMER.CREATE.SESSIONS.spy":      `{"stream_name":"SESSIONS","config":{"deliver_subject":"` + mark + `"}}`,
		"agent.main.s1.ui.message":                  `{"` + mark + `":1}`,
		"stream.main.s1":                            `{"` + mark + `":1}`,
		"$O.artifacts.C.x":                          mark,
		"reply.core." + string(r.runner) + ".x.1":   `{"state":"finished","` + mark + `":1}`,
		"reply.core.no-secrets.x.1":                 `{"verb":"continue","reason":"` + mark + `"}`,
		"hook.before_act.no-secrets":                mark,
		"beacon.core." + mark:                       `{"limit":1,"backlog":9}`,
		"tool.no-secrets.x":                         mark,
		"fired.main.s1.t":                           mark,
		"timer.main.s1.t":                           mark,
		"service.core.call.no-secrets":              `{"caller":"no-secrets","tool":"` + mark + `"}`,
		"media.frame.main.s1":                       mark,
		"$SYS.REQ.CLAIMS.UPDATE":                    mark,
		"$SYS.REQ.SERVER.PING":                      ``,
		"plugin.register.no-secrets":                `{"name":"no-secrets","description":"` + mark + `"}`,
		"answer.victim.main.s1.ui.message":          mark,
		"llm.victim.generate":                       mark,
		"storage.victim.put":                        mark,
		"guide.victim":                              mark,
		"$JS.ACK.SESSIONS.core.1.1.1.1.1":           "+TERM",
		"discover.runner":                           mark,
		"probe.victim":                              mark,
	}
}

// An identity can do none of what somebody with the token of a bus without rights can.
func TestTheActsOfARogue(t *testing.T) {
	r := run(t)
	r.policy()
	if end := r.turn("s1", "write hello to secret.txt"); !strings.Contains(end.Answer, "nothing may be done") {
		t.Fatalf("the policy does not judge: %q", end.Answer)
	}
	spied := make(mailbox, 1<<16)
	if _, err := r.whole.Journal.Conn().ChanSubscribe(">", spied); err != nil {
		t.Fatal(err)
	}
	r.flush(r.whole.Journal.Conn())
	before := r.last()
	for part, c := range charters() {
		c.Name = subject.Identity("rogue-" + part)
		for i := range c.Listeners {
			c.Listeners[i] = subject.Writer(c.Name)
		}
		at := r.invite(c)
		r.sniff(part, r.plain(at))
		nc := r.plain(at)
		granted, err := rights.Declared().Party(c)
		if err != nil {
			t.Fatal(err)
		}
		for s, body := range r.attacks() {
			if allowed(granted.Publish, s) {
				t.Errorf("the charter of %s grants %s", part, s)
			}
			// The server may answer to the inbox, or, as a deputy, on the subject of a commit.
			for _, reply := range []string{nc.NewRespInbox(), "agent.main.s1.commit", "plugin.unregister.no-secrets"} {
				if err := nc.PublishRequest(s, reply, []byte(body)); err != nil {
					t.Fatal(err)
				}
			}
			m, err := nc.Request(s, []byte(body), soon)
			if err == nil && !notEnabled(m) {
				t.Errorf("%s: %s is answered: %s", part, s, m.Data)
			}
		}
		r.flush(nc)
	}
	r.flush(r.whole.Journal.Conn())
	for {
		select {
		case m := <-spied:
			if bytes.Contains(m.Data, []byte(mark)) || strings.Contains(m.Subject, mark) {
				t.Errorf("it has reached the system: %s %s", m.Subject, m.Data)
			}
			continue
		default:
		}
		break
	}
	if end := r.turn("s1", "write hello to secret.txt"); !strings.Contains(end.Answer, "nothing may be done") {
		t.Errorf("the policy does not judge any more: %q", end.Answer)
	}
	if after := r.last(); after < before {
		t.Errorf("the log ended at %d, and ends at %d", before, after)
	}
}

// notEnabled reports the server's answer that an account has no JetStream.
func notEnabled(m *nats.Msg) bool {
	var a struct{ Error *jetstream.APIError }
	return json.Unmarshal(m.Data, &a) == nil && a.Error != nil && a.Error.Code == 503
}

func allowed(patterns []string, s string) bool { return granted(patterns, s) }

func (r *running) flush(nc *nats.Conn) {
	r.Helper()
	if err := nc.FlushTimeout(natstest.Patience); err != nil {
		r.Fatal(err)
	}
}

func (r *running) last() uint64 {
	r.Helper()
	seq, err := r.whole.Journal.LastSequence(natstest.Context(r))
	if err != nil {
		r.Fatal(err)
	}
	return seq
}

// sniff listens to what belongs to others while a turn runs.
func (r *running) sniff(part string, nc *nats.Conn) {
	r.Helper()
	defer nc.Close()
	got := make(mailbox, 1<<12)
	for _, s := range []string{
		">", "hook.before_act.no-secrets", "hook.*.*", "runner.>", "reply.>", "_INBOX.>", "plugin.*.*", "service.>", "announce.>",
		"$KV.>", "$JS.>", "$SYS.>", "agent.main.other.*.*", "agent.*.*.commit", "tool.>", "provider.>",
	} {
		if _, err := nc.ChanSubscribe(s, got); err != nil {
			r.Fatal(err)
		}
		if _, err := nc.ChanQueueSubscribe(s, "core", got); err != nil {
			r.Fatal(err)
		}
		if _, err := nc.ChanQueueSubscribe(s, "no-secrets", got); err != nil {
			r.Fatal(err)
		}
	}
	r.flush(nc)
	if part == "see" || part == "everything" {
		return // they see sessions, as granted
	}
	r.turn("other", "write hello to secret.txt")
	r.flush(nc)
	for s := range got.subjects() {
		r.Errorf("%s has received %s", part, s)
	}
}

// The log of a system with rights that does not run can be read, for a backup.
func TestTheLogOfAStoppedSystem(t *testing.T) {
	r := run(t)
	r.turn("s1", "what is 2+2?")
	last := r.last()
	r.sys.Stop()
	o, err := system.StartOffline(natstest.Context(t), r.data, quiet)
	if err != nil {
		t.Fatal(err)
	}
	defer o.Stop()
	if seq, err := o.LastSequence(natstest.Context(t)); err != nil || seq < last {
		t.Errorf("the log ends at %d, %v, want at least %d", seq, err, last)
	}
}

// A revoked identity is gone at once, and what it shows is refused.
func TestARevokedIdentityIsGone(t *testing.T) {
	r := run(t)
	c := rights.Charter{Name: "guest", Listeners: []subject.Writer{"guest"}}
	at := r.invite(c)
	nc := r.plain(at)
	closed, why := make(chan struct{}), make(chan error, 8)
	nc.SetClosedHandler(func(*nats.Conn) { close(closed) })
	nc.SetErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { why <- err })
	m, err := nc.Request("agent.main.g.sense.input.guest", []byte(`{"text":"what is 2+2?"}`), natstest.Patience)
	if err != nil || !bytes.Contains(m.Data, []byte(`"seq"`)) {
		t.Fatalf("an invited listener is not acknowledged: %v %s", err, m.Data)
	}
	who := r.sys.Core().Identities()
	if _, err := who.Do(natstest.Context(t), coreapi.IdentitiesQuery{
		Op: coreapi.IdentityRevoke, Name: "guest", Caller: "test",
	}); err != nil {
		t.Fatal(err)
	}
	<-closed
	if err := <-why; !errors.Is(err, nats.ErrAuthRevoked) {
		t.Errorf("the server says %v, want that it was revoked", err)
	}
	if _, err := bus.Connect(natstest.Context(t), at); !errors.Is(err, nats.ErrAuthorization) {
		t.Errorf("connecting with revoked credentials: %v", err)
	}
	page, err := who.Do(natstest.Context(t), coreapi.IdentitiesQuery{Name: "guest", Caller: "test"})
	if err != nil || len(page.Identities) != 1 || page.Identities[0].State != coreapi.IdentityRevoked ||
		page.Identities[0].Valid != 0 {
		t.Errorf("%+v %v", page, err)
	}
	// Invited again, it has another account: the old credentials stay refused.
	r.plain(r.invite(c))
	if _, err := bus.Connect(natstest.Context(t), at); !errors.Is(err, nats.ErrAuthorization) {
		t.Errorf("connecting with the credentials from before: %v", err)
	}
}

// The registry refuses what the charter does not grant, with what would grant it.
func TestAManifestBeyondTheCharterIsRefused(t *testing.T) {
	r := run(t)
	c := r.invite(rights.Charter{Name: "small", Tools: []string{"small"}, Hooks: []string{"after_act"}})
	serve := func() error {
		return plugin.Serve(natstest.Context(t), plugin.Manifest{Name: "small", Version: "1.0.0", Priority: 5}, plugin.Handlers{
			plugin.BeforeAct(func(context.Context, *plugin.HookCall[hook.ActData]) (plugin.Reply, error) {
				return plugin.Continue(), nil
			}),
			plugin.Tool("big:tool", "A tool.", func(context.Context, struct{}) (string, error) { return "", nil }),
		}, plugin.WithConfig(c), plugin.WithLogger(quiet))
	}
	_, err := serve(), serve() // the second one is refused likewise, and not noted again
	for _, want := range []string{"--hooks before_act", "--tools big", "--order"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the registry answers %v, want that %s is advised", err, want)
		}
	}
	if lines := r.denials(); len(lines) != 1 || !strings.Contains(lines[0], "registration of plugin small") ||
		!strings.Contains(lines[0], "--hooks before_act") {
		t.Errorf("the audit log says %q", lines)
	}
}

// denials are the entries of the audit log about what was denied.
func (r *running) denials() []string {
	r.Helper()
	var page coreapi.AuditPage
	if err := r.whole.Administer(natstest.Context(r), coreapi.VerbAudit, coreapi.AuditQuery{Verb: audit.Denied}, &page); err != nil {
		r.Fatal(err)
	}
	return page.Lines
}
