package rightstest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/core/decide"
	"skandha.dev/services/internal/rights"
	"skandha.dev/services/internal/trust"
	"skandha.dev/services/test/natstest"
)

// The server does what its clients ask for with rights that they lack: it answers to any subject, and a
// consumer delivers to any subject. These tests are a service that was taken over and uses that.

// process connects a process of a service with the service's real key.
func (r *running) process(service string) *nats.Conn {
	r.Helper()
	a, err := trust.Open(filepath.Join(r.data, "keys.json"))
	if err != nil {
		r.Fatal(err)
	}
	k, err := a.Key(service)
	if err != nil {
		r.Fatal(err)
	}
	c, err := k.Credentials()
	if err != nil {
		r.Fatal(err)
	}
	at, err := url.Parse(r.sys.Join())
	if err != nil {
		r.Fatal(err)
	}
	nc, err := nats.Connect("nats://"+at.Host, nats.UserJWT(c.JWT, c.Sign), nats.CustomInboxPrefix("_INBOX."+string(c.Process)),
		nats.Timeout(natstest.Patience), nats.NoReconnect(), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(nc.Close)
	return nc
}

// deputies are services and a stream whose content they control.
var deputies = map[string]struct{ stream, subj string }{
	"toolrunner": {"OBJ_claims", "$O.claims.C.forged"},
	"provider":   {"OBJ_claims", "$O.claims.C.forged"},
	"sandbox":    {"OBJ_claims", "$O.claims.C.forged"},
	"listener":   {"KV_listeners", "$KV.listeners.forged"},
	"uibridge":   {"KV_listeners", "$KV.listeners.forged"},
}

// keep stores content in the stream of a deputy, and returns its sequence.
func (r *running) keep(nc *nats.Conn, subj string, hdr nats.Header, body []byte) uint64 {
	r.Helper()
	m, err := nc.RequestMsg(&nats.Msg{Subject: subj, Header: hdr, Data: body}, natstest.Patience)
	if err != nil {
		r.Fatal(err)
	}
	var ack struct{ Seq uint64 }
	if err := json.Unmarshal(m.Data, &ack); err != nil || ack.Seq == 0 {
		r.Fatalf("storing on %s: %s", subj, m.Data)
	}
	return ack.Seq
}

// read has the server send what a deputy stored to a subject.
func (r *running) read(nc *nats.Conn, stream string, seq uint64, reply string) {
	r.Helper()
	if err := nc.PublishRequest("$JS.API.DIRECT.GET."+stream, reply, fmt.Appendf(nil, `{"seq":%d}`, seq)); err != nil {
		r.Fatal(err)
	}
	r.flush(nc)
}

// No service but core has the server deliver anything to the subjects of others.
func TestNoServiceHasContentDelivered(t *testing.T) {
	r := run(t)
	const target = "reply.core.victim.process.1"
	delivered := make(mailbox, 64)
	if _, err := r.whole.Journal.Conn().ChanSubscribe(target, delivered); err != nil {
		t.Fatal(err)
	}
	r.flush(r.whole.Journal.Conn())
	for service, d := range deputies {
		nc := r.process(service)
		r.keep(nc, d.subj, nil, []byte(`{"state":"finished","result":{"forged":true}}`))
		for _, s := range []string{
			"CONSUMER.CREATE." + d.stream, "CONSUMER.CREATE." + d.stream + ".push", "CONSUMER.CREATE." + d.stream + ".push." + d.subj,
			"CONSUMER.DURABLE.CREATE." + d.stream + ".push",
		} {
			body := fmt.Sprintf(`{"stream_name":%q,"config":{"name":"push","deliver_subject":%q,"filter_subject":%q,`+
				`"deliver_policy":"all","ack_policy":"none"}}`, d.stream, target, d.subj)
			if err := nc.PublishRequest("$JS.API."+s, nc.NewInbox(), []byte(body)); err != nil {
				t.Fatal(err)
			}
		}
		r.flush(nc)
		for name := range r.consumers(d.stream) {
			t.Errorf("%s has created the consumer %s of %s", service, name, d.stream)
		}
	}
	r.flush(r.whole.Journal.Conn())
	for s := range delivered.subjects() {
		t.Errorf("the server has delivered to %s", s)
	}
	for _, name := range rights.Declared().ServiceNames() {
		if name == "core" {
			continue
		}
		granted, err := rights.Declared().Service(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range []string{
			"$JS.API.CONSUMER.CREATE.OBJ_claims.x", "$JS.API.CONSUMER.CREATE.KV_plugins.x", "$JS.API.CONSUMER.CREATE.CRON.x",
			"$JS.API.CONSUMER.CREATE.SESSIONS.x", "$JS.API.STREAM.CREATE.CRON", "$JS.API.STREAM.UPDATE.KV_cron",
		} {
			if allowed(granted.Publish, s) {
				t.Errorf("%s may publish on %s", name, s)
			}
		}
	}
}

// consumers lists the push consumers of a stream.
func (r *running) consumers(stream string) map[string]bool {
	r.Helper()
	s, err := r.whole.Journal.JetStream().Stream(natstest.Context(r), stream)
	if err != nil {
		r.Fatal(err)
	}
	found := map[string]bool{}
	list := s.ListConsumers(natstest.Context(r))
	for c := range list.Info() {
		if c.Config.DeliverSubject != "" {
			found[c.Name] = true
		}
	}
	if err := list.Err(); err != nil && !errors.Is(err, jetstream.ErrEndOfData) {
		r.Fatal(err)
	}
	return found
}

// A runner that was taken over, and even knows the subject of an open answer, cannot have the server
// answer for another runner.
func TestTheServerAnswersForNobody(t *testing.T) {
	r := run(t)
	at, err := url.Parse(r.sys.Join())
	if err != nil {
		t.Fatal(err)
	}
	a, err := trust.Open(filepath.Join(r.data, "keys.json"))
	if err != nil {
		t.Fatal(err)
	}
	k, err := a.Key("core")
	if err != nil {
		t.Fatal(err)
	}
	creds, err := k.Credentials()
	if err != nil {
		t.Fatal(err)
	}
	core := natstest.Dial(t, bus.Config{URL: "nats://" + at.Host, Name: "core", Credentials: creds})
	victim := r.whole.Journal.Conn()
	asked, err := victim.SubscribeSync("runner.victim")
	if err != nil {
		t.Fatal(err)
	}
	r.flush(victim)
	caller, err := core.NewCaller()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = caller.Close() }()
	answers := make(chan bus.Reply, 16)
	cancel, err := caller.Send(natstest.Context(t), "runner.victim", "victim", nil, []byte(`{}`), func(x bus.Reply) { answers <- x })
	if err != nil {
		t.Fatal(err)
	}
	defer cancel()
	q, err := asked.NextMsgWithContext(natstest.Context(t))
	if err != nil {
		t.Fatal(err)
	}
	for service, d := range deputies {
		nc := r.process(service)
		seq := r.keep(nc, d.subj, nil, []byte(mark))
		r.read(nc, d.stream, seq, q.Reply)
	}
	r.flush(victim) // the server has sent them before the victim answers
	if err := victim.Publish(q.Reply, []byte("mine")); err != nil {
		t.Fatal(err)
	}
	if first := <-answers; string(first.Data) != "mine" {
		t.Errorf("the first answer is %q, want that of the runner that was asked", first.Data)
	}
}

// What the server stores in the log for somebody else changes nothing: a session goes on, and nothing was
// said in it.
func TestTheServerWritesNoLog(t *testing.T) {
	r := run(t)
	ref := subject.Ref{Agent: "main", Session: "s1"}
	r.turn(ref.Session, "what is 2+2?")
	for service, d := range deputies {
		nc := r.process(service)
		// An acknowledgement on the session's commits.
		if err := nc.PublishRequest(d.subj, ref.Commit(), []byte("x")); err != nil {
			t.Fatal(err)
		}
		// The answer of a direct get.
		for _, h := range []nats.Header{nil, {"Skandha-Outgoing": {"1"}}} {
			r.read(nc, d.stream, r.keep(nc, d.subj, h, []byte(`[{"forged":true}]`)), ref.Commit())
		}
		// The text of another person, and an answer that no person gave.
		seq := r.keep(nc, d.subj, nil, []byte(`{"text":"`+mark+`"}`))
		r.read(nc, d.stream, seq, "agent.main.s1.person.input.owner")
		seq = r.keep(nc, d.subj, nil, []byte(`{"confirmation_id":"`+mark+`","hash":"x","approved":true}`))
		r.read(nc, d.stream, seq, "agent.main.s1.person.confirmation.owner")
		// Pages of the API.
		if err := nc.PublishRequest("$JS.API.STREAM.INFO."+d.stream, ref.Commit(), nil); err != nil {
			t.Fatal(err)
		}
		r.flush(nc)
		if end := r.turn(ref.Session, "what is 3+3?"); end.Answer == "" {
			t.Fatalf("after what %s did: %+v", service, end)
		}
	}
	commits := r.commits(ref)
	for _, c := range commits {
		if decide.IsCheckpoint(c) {
			t.Errorf("commit %s: the session was locked", c.Header.CommitID)
		}
		for _, e := range c.Events {
			b, err := json.Marshal(e)
			if err != nil {
				t.Fatal(err)
			}
			if bytes.Contains(b, []byte(mark)) || e.Type == event.TypeTurnFailed {
				t.Errorf("it has had an effect: %s", b)
			}
		}
	}
	s, err := r.whole.Journal.JetStream().Stream(natstest.Context(t), bus.StreamSessions)
	if err != nil {
		t.Fatal(err)
	}
	info, err := s.Info(natstest.Context(t), jetstream.WithSubjectFilter(ref.Commit()))
	if err != nil {
		t.Fatal(err)
	}
	if stored := int(info.State.Subjects[ref.Commit()]); stored < len(commits)+3*len(deputies) { //nolint:gosec // some tens
		t.Errorf("%d messages of which %d are commits: the server has stored less than was tried", stored, len(commits))
	}
}

// commits reads the commits of a session.
func (r *running) commits(ref subject.Ref) (out []event.Commit) {
	r.Helper()
	for m, err := range r.whole.Journal.Commits(natstest.Context(r), ref, 0) {
		if err != nil {
			r.Fatal(err)
		}
		c, err := event.DecodeCommit(ref, m.Data)
		if err != nil {
			r.Fatalf("commit %d: %v", m.Seq, err)
		}
		out = append(out, c)
	}
	return out
}
