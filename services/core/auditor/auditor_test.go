package auditor_test

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
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/core/auditor"
	"skandha.dev/services/internal/audit"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/natsserver"
	"skandha.dev/services/internal/signature"
	"skandha.dev/services/test/natstest"
)

type world struct {
	t     *testing.T
	srv   *natsserver.Server
	bus   *journal.Journal
	marks *marks
	cfg   auditor.Config
	prev  map[subject.Ref]uint64
}

func newWorld(t *testing.T) *world {
	srv := natstest.Start(t)
	w := &world{t: t, srv: srv, bus: natstest.Connect(t, srv), marks: &marks{all: map[string]uint64{}}, prev: map[subject.Ref]uint64{}}
	natstest.EnsureStreams(t, w.bus)
	return w
}

// core starts an auditor on a separate connection; kill ends it at once, without a word.
func (w *world) core() (a *auditor.Auditor, kill func()) {
	cfg := w.cfg
	cfg.Bus, cfg.Marks, cfg.Log = natstest.Connect(w.t, w.srv), w.marks, natstest.Logger(w.t)
	a = auditor.New(cfg)
	kill = a.Start(w.t.Context())
	w.t.Cleanup(kill)
	return a, kill
}

// say stores a commit in which a session takes up n inputs.
func (w *world) say(session string, texts ...string) uint64 {
	w.t.Helper()
	ref := subject.Ref{Agent: "main", Session: subject.Session(session)}
	id := fmt.Sprintf("%s-%d", session, w.prev[ref])
	c := event.Commit{Ref: ref, Header: event.Header{
		CommitID: id, Prev: w.prev[ref], Now: time.Unix(1_700_000_000, 0).UTC(), FoldVersion: 1, Digest: "d",
		Trigger: event.Trigger{Kind: event.ByCause, Sequence: 1, Cause: subject.Input, Writer: "cli"},
	}}
	for i, text := range texts {
		c.Events = append(c.Events, event.New(ref, id+strconv.Itoa(i), event.Source,
			event.Perceived{Sequence: uint64(i + 1), Writer: "ui-ann", Text: text, Disposition: event.Started}))
	}
	body, err := c.Encode()
	if err != nil {
		w.t.Fatal(err)
	}
	seq, err := w.bus.AppendCommit(natstest.Context(w.t), ref, body, w.prev[ref])
	if err != nil {
		w.t.Fatal(err)
	}
	w.prev[ref] = seq
	return seq
}

// entries reads the log, as it is.
func (w *world) entries() (out []audit.Entry) {
	w.t.Helper()
	for m, err := range w.bus.AuditBlocks(natstest.Context(w.t), 0) {
		if err != nil {
			w.t.Fatal(err)
		}
		for _, line := range audit.Lines(m.Data) {
			e, _ := audit.Parse(line)
			out = append(out, e)
		}
	}
	return out
}

// said are the texts of the inputs that are audited, in order.
func (w *world) said() (out []string) {
	for _, e := range w.entries() {
		if e.Verb == audit.Asked {
			out = append(out, e.Detail)
		}
	}
	return out
}

func (w *world) await(a *auditor.Auditor, n int) {
	w.t.Helper()
	natstest.Eventually(w.t, fmt.Sprintf("%d inputs are audited", n), func() bool {
		a.Wake()
		return len(w.said()) >= n
	})
}

// whole verifies the chain and compares it with the log of decisions.
func (w *world) whole() *audit.Verifier {
	w.t.Helper()
	log, err := w.bus.LogState(natstest.Context(w.t))
	if err != nil {
		w.t.Fatal(err)
	}
	v := audit.NewVerifier(log.Created, nil)
	for m, err := range w.bus.AuditBlocks(natstest.Context(w.t), 0) {
		if err != nil {
			w.t.Fatal(err)
		}
		for _, line := range audit.Lines(m.Data) {
			v.Line(line)
		}
	}
	for m, err := range w.bus.AllCommits(natstest.Context(w.t), 0) {
		if err != nil {
			w.t.Fatal(err)
		}
		ref, _ := subject.ParseCommit(m.Subject)
		c, err := event.DecodeCommit(ref, m.Data)
		if err != nil {
			w.t.Fatal(err)
		}
		v.Commit(c, m.Seq, m.Data)
	}
	return v
}

// Each commit is audited once, in the order of the log, also what was stored while no core ran, and whichever core
// goes on after another one was killed.
func TestEachCommitIsAuditedOnce(t *testing.T) {
	w := newWorld(t)
	w.say("s1", "before 1", "before 2")
	a, kill := w.core()
	w.say("s2", "during")
	w.await(a, 3)
	kill()
	w.say("s1", "between")
	b, _ := w.core()
	w.await(b, 4)
	if got := strings.Join(w.said(), ", "); got != "before 1, before 2, during, between" {
		t.Errorf("audited: %s", got)
	}
	if v := w.whole(); len(v.Breaks()) > 0 || v.Compared != 4 {
		t.Errorf("%v, %d compared", v.Breaks(), v.Compared)
	}
}

// Several cores work at once, with acts of operators between the commits: one chain, nothing twice, nothing left out.
func TestSeveralCoresWriteOneChain(t *testing.T) {
	w := newWorld(t)
	a, _ := w.core()
	b, _ := w.core()
	const n = 20
	var acts sync.WaitGroup
	for i, core := range []*auditor.Auditor{a, b} {
		acts.Go(func() {
			for j := range n {
				e := audit.Entry{By: audit.Who{Kind: audit.Operator, Name: "bob"}, Verb: audit.Revoked, What: fmt.Sprint(i, "/", j)}
				if _, err := core.Announce(natstest.Context(t), e); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for i := range n {
		w.say("s"+strconv.Itoa(i%3), fmt.Sprint("input ", i))
		a.Wake()
		b.Wake()
	}
	acts.Wait()
	w.await(a, n)
	acted, said := map[string]int{}, map[string]int{}
	for _, e := range w.entries() {
		switch e.Verb {
		case audit.Revoked:
			acted[e.What]++
		case audit.Asked:
			said[e.Detail]++
		}
	}
	if len(acted) != 2*n || len(said) != n {
		t.Errorf("%d acts of %d, %d inputs of %d", len(acted), 2*n, len(said), n)
	}
	for what, times := range acted {
		if times != 1 {
			t.Errorf("act %s: %d times", what, times)
		}
	}
	if v := w.whole(); len(v.Breaks()) > 0 || v.Compared != n {
		t.Errorf("%v, %d compared", v.Breaks(), v.Compared)
	}
}

// The number that Announce returns is that of its entry, and what failed names it.
func TestAnActThatFailsIsNotTakenBack(t *testing.T) {
	w := newWorld(t)
	a, _ := w.core()
	e := audit.Entry{By: audit.Who{Kind: audit.Operator, Name: "bob"}, Verb: audit.Revoked, What: "identity echo"}
	n, err := a.Announce(natstest.Context(t), e)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Failed(natstest.Context(t), n, e, errors.New("no identity echo")); err != nil {
		t.Fatal(err)
	}
	all := w.entries()
	if all[0].N != n || all[0].Verb != audit.Revoked || all[1].Verb != audit.Failed || all[1].Of != n ||
		all[1].What != "revoked identity echo" || all[1].Detail != "no identity echo" {
		t.Errorf("%+v", all)
	}
}

// A state is an entry when it changes, and not when a core starts again.
func TestFactsAreAuditedWhenTheyChange(t *testing.T) {
	w := newWorld(t)
	var mu sync.Mutex
	is := "registered"
	w.cfg.Facts = func(context.Context) ([]auditor.Fact, error) {
		mu.Lock()
		defer mu.Unlock()
		return []auditor.Fact{{Of: "plugin/echo", Is: is, Entry: audit.Entry{Verb: audit.Verb(is), What: "plugin echo"}}}, nil
	}
	count := func() (n int) {
		for _, e := range w.entries() {
			if e.What == "plugin echo" {
				n++
			}
		}
		return n
	}
	a, kill := w.core()
	natstest.Eventually(t, "the first state", func() bool { a.Wake(); return count() == 1 })
	kill()
	b, _ := w.core()
	w.say("s1", "a sign that it has looked")
	w.await(b, 1)
	if count() != 1 {
		t.Errorf("%d entries of one state", count())
	}
	mu.Lock()
	is = "lost"
	mu.Unlock()
	natstest.Eventually(t, "the second state", func() bool { b.Wake(); return count() == 2 })
}

// The server lets nobody delete single entries.
func TestTheStreamRefusesToForget(t *testing.T) {
	w := newWorld(t)
	a, _ := w.core()
	w.say("s1", "one")
	w.await(a, 1)
	s, err := w.bus.JetStream().Stream(natstest.Context(t), journal.StreamAudit)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.DeleteMsg(natstest.Context(t), 1); err == nil {
		t.Error("an entry was deleted")
	}
	if err := s.Purge(natstest.Context(t)); err == nil {
		t.Error("the stream was purged")
	}
	c := s.CachedInfo().Config
	c.DenyPurge = false
	if _, err := w.bus.JetStream().UpdateStream(natstest.Context(t), c); err == nil {
		t.Error("the protection was removed")
	}
}

// What a session's purge, another log and a full stream do.
func TestTheAuditLogOutlivesTheLog(t *testing.T) {
	w := newWorld(t)
	a, _ := w.core()
	w.say("s1", "purged")
	w.await(a, 1)
	ref := subject.Ref{Agent: "main", Session: "s1"}
	s, err := w.bus.JetStream().Stream(natstest.Context(t), bus.StreamSessions)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Purge(natstest.Context(t), jetstream.WithPurgeSubject(ref.All())); err != nil {
		t.Fatal(err)
	}
	if v := w.whole(); len(v.Breaks()) > 0 || v.Gone() != 1 {
		t.Errorf("after a purge: %v, %d gone", v.Breaks(), v.Gone())
	}
	if err := w.bus.JetStream().DeleteStream(natstest.Context(t), bus.StreamSessions); err != nil {
		t.Fatal(err)
	}
	natstest.EnsureStreams(t, w.bus)
	w.prev = map[subject.Ref]uint64{}
	w.say("s1", "in another log")
	w.await(a, 2)
	all := w.entries()
	if all[1].Verb != audit.Renewed || !strings.Contains(all[1].Detail, "begins anew") {
		t.Errorf("%+v", all[1])
	}
	if v := w.whole(); len(v.Breaks()) > 0 || v.Compared != 1 {
		t.Errorf("after another log: %v, %d compared", v.Breaks(), v.Compared)
	}
}

// A stream that is full drops its oldest entries; that is no damage.
func TestAFullStreamDropsItsOldestEntries(t *testing.T) {
	w := newWorld(t)
	a, kill := w.core()
	for i := range 30 {
		w.say("s1", fmt.Sprint("input ", i))
	}
	w.await(a, 30)
	for i := range 10 {
		if _, err := a.Announce(natstest.Context(t), audit.Entry{Verb: audit.Revoked, What: fmt.Sprint(i)}); err != nil {
			t.Fatal(err)
		}
	}
	s, err := w.bus.JetStream().Stream(natstest.Context(t), journal.StreamAudit)
	if err != nil {
		t.Fatal(err)
	}
	c := s.CachedInfo().Config
	c.MaxBytes = 4000
	if _, err := w.bus.JetStream().UpdateStream(natstest.Context(t), c); err != nil {
		t.Fatal(err)
	}
	if err := a.Verify(natstest.Context(t)); err != nil {
		t.Fatal(err)
	}
	kill() // the next one raises the limit again, and knows that there was no room
	b, _ := w.core()
	page, err := b.Query(natstest.Context(t), coreapi.AuditQuery{Verify: true})
	if err != nil || page.First < 2 || page.Damage != "" {
		t.Errorf("first %d, damage %q, %v", page.First, page.Damage, err)
	}
}

func TestEntriesAreListedPageByPage(t *testing.T) {
	w := newWorld(t)
	a, _ := w.core()
	for i := range 7 {
		w.say("s"+strconv.Itoa(i%2), fmt.Sprint("input ", i))
		w.await(a, i+1) // a block for each
	}
	w.say("s0", "a", "b", "c") // three in one block
	w.await(a, 10)
	list := func(q coreapi.AuditQuery) (pages []string) {
		for {
			page, err := a.Query(natstest.Context(t), q)
			if err != nil {
				t.Fatal(err)
			}
			var one []string
			for _, l := range page.Lines {
				e, err := audit.Parse([]byte(l))
				if err != nil {
					t.Fatal(err)
				}
				one = append(one, strconv.FormatUint(e.N, 10))
			}
			pages = append(pages, strings.Join(one, " "))
			if page.Next == 0 {
				return pages
			}
			if q.From > 0 {
				q.From = page.Next
			} else {
				q.Before = page.Next
			}
		}
	}
	for want, q := range map[string]coreapi.AuditQuery{
		"1 2 3 4 5 6 7 8 9 10":     {},
		"7 8 9 10 | 3 4 5 6 | 1 2": {Limit: 4},
		"1 2 3 4 | 5 6 7 8 | 9 10": {Limit: 4, From: 1},
		"9 10":                     {From: 9},
		"1 2 3":                    {Before: 4},
		"1 3 5 7 8 9 10":           {Session: "s0"},
		"8 9 10 | 3 5 7 | 1":       {Session: "s0", Limit: 3},
		"":                         {By: "bob"},
		"2 4 6":                    {By: "ann", Verb: audit.Asked, Agent: "main", Session: "s1", From: 1},
	} {
		if got := strings.Join(list(q), " | "); got != want {
			t.Errorf("%+v: %s, want %s", q, got, want)
		}
	}
	for _, q := range []coreapi.AuditQuery{{Limit: 1001}, {Limit: -1}, {Verb: "liked"}, {From: 1, Before: 2}} {
		if _, err := a.Query(natstest.Context(t), q); bus.CodeOf(err) != bus.CodeInvalidArgument {
			t.Errorf("%+v: %v", q, err)
		}
	}
}

// The head is sent again until the webhook takes it, and is signed.
func TestTheHeadIsPublished(t *testing.T) {
	key := "whsec_c2l4dGVlbiBieXRlcyBvZiBrZXk="
	raw, err := signature.Key(key)
	if err != nil {
		t.Fatal(err)
	}
	heads := make(chan audit.Head, 10)
	var mu sync.Mutex
	refusals := 1
	hook := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if refusals > 0 {
			refusals--
			http.Error(rw, "later", http.StatusServiceUnavailable)
			return
		}
		body, _ := io.ReadAll(r.Body)
		sec, _ := strconv.ParseInt(r.Header.Get(signature.HeaderTimestamp), 10, 64)
		if r.Header.Get(signature.HeaderSignature) != signature.Sign(raw, r.Header.Get(signature.HeaderID), time.Unix(sec, 0), body) {
			t.Error("the signature does not fit")
		}
		var h audit.Head
		if err := json.Unmarshal(body, &h); err != nil {
			t.Error(err)
		}
		heads <- h
	}))
	defer hook.Close()
	w := newWorld(t)
	w.cfg.Head = auditor.Head{File: filepath.Join(t.TempDir(), "heads"), Webhook: hook.URL, Secret: key, Interval: time.Second}
	a, _ := w.core()
	w.say("s1", "one")
	w.await(a, 1)
	var h audit.Head
	select {
	case h = <-heads:
	case <-natstest.Context(t).Done():
		t.Fatal("no head was sent")
	}
	if all := w.entries(); h != all[0].Head() {
		t.Errorf("sent %+v of %+v", h, all)
	}
	f, err := os.Open(w.cfg.Head.File)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if written, err := audit.ReadHeads(f); err != nil || len(written) != 1 || written[0] != h {
		t.Errorf("written: %+v, %v", written, err)
	}
}

func TestWhereTheHeadGoesIsChecked(t *testing.T) {
	for want, h := range map[string]auditor.Head{
		"audit.head.webhook is": {Webhook: "example.org"}, "audit.head.secret:": {Secret: "whsec_short"},
		"audit.head.interval is": {Interval: time.Millisecond},
	} {
		if err := h.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v", h, err)
		}
	}
	if err := (auditor.Head{}).Validate(); err != nil {
		t.Error(err)
	}
}
