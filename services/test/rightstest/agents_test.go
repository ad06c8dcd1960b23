package rightstest

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/rights"
	"skandha.dev/services/test/natstest"
)

// Who may follow a session reads its past, page by page, and that of no other one.
func TestThePastOfASession(t *testing.T) {
	r := run(t)
	r.turn("mine", "what is 2+2?")
	r.turn("mine", "what is 3+3?")
	r.turn("other", "what is 4+4?")
	follower := r.plain(r.invite(rights.Charter{
		Name: "follower", Agents: []subject.Agent{"main"}, Sessions: []subject.Session{"mine"},
	}))
	observer := r.plain(r.invite(rights.Charter{Name: "observer", See: true, Agents: []subject.Agent{"main"}}))
	ask := func(nc *nats.Conn, subj, body string, into any) error {
		t.Helper()
		m, err := nc.Request(subj, []byte(body), natstest.Patience)
		if err != nil {
			return err
		}
		if code := m.Header.Get(bus.ErrorHeader); code != "" {
			return bus.Errorf(bus.Code(code), "%s", m.Data)
		}
		return json.Unmarshal(m.Data, into)
	}
	var got []string
	for after, pages := uint64(0), 0; ; pages++ {
		var page coreapi.PastPage
		body := "{\"limit\": 1}"
		if after > 0 {
			body = fmt.Sprintf("{\"limit\": 1, \"after\": %d}", after)
		}
		if err := ask(follower, "service.core.past.main.mine", body, &page); err != nil || len(page.Commits) != 1 {
			t.Fatalf("page %d: %v, %+v", pages, err, page)
		}
		c, err := event.DecodeCommit(subject.Ref{Agent: "main", Session: "mine"}, page.Commits[0].Events)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range c.Events {
			var end event.Recorded
			if e.Type == event.TypeRecorded {
				if err := e.DataAs(&end); err != nil {
					t.Fatal(err)
				}
				got = append(got, end.Answer)
			}
		}
		if after = page.Next; after == 0 {
			break
		}
	}
	if len(got) != 2 || !strings.Contains(got[0], "4") || !strings.Contains(got[1], "6") {
		t.Errorf("the answers of the past are %q", got)
	}
	var all coreapi.SessionsPage
	var past coreapi.PastPage
	for subj, nc := range map[string]*nats.Conn{
		"service.core.past.main.other": follower, "service.core.sessions.main": follower, "service.core.sessions": observer,
		"service.core.past.butler.mine": observer, "service.core.sessions.butler": observer,
	} {
		if err := ask(nc, subj, "{}", &past); !errors.Is(err, nats.ErrNoResponders) {
			t.Errorf("%s: %v, want that nobody answers", subj, err)
		}
	}
	if err := ask(observer, "service.core.sessions.main", "", &all); err != nil || len(all.Sessions) != 2 {
		t.Errorf("the sessions of the agent are %+v, %v", all, err)
	}
	if err := ask(observer, "service.core.past.main.other", "", &past); err != nil || len(past.Commits) == 0 || past.Next != 0 {
		t.Errorf("the past of the other session is %+v, %v", past, err)
	}
	if err := ask(observer, "service.core.sessions.main", `{"agent":"butler"}`, &all); !errors.Is(err, bus.ErrDenied) {
		t.Errorf("the sessions of another agent in the body: %v", err)
	}
	if err := ask(observer, "service.core.past.main.other", `{"limit":-1}`, &past); !errors.Is(err, bus.ErrInvalidArgument) {
		t.Errorf("a limit of -1: %v", err)
	}
}

// Tools that a plugin has run are of the agents of its charter alone, and an observer has none run.
func TestInternalCallsAreOfTheAgentsOfTheCharter(t *testing.T) {
	r := run(t)
	for name, want := range map[subject.Identity]bool{"mine": true, "others": false, "watcher": false} {
		c := rights.Charter{Name: name, Hooks: []string{"before_act"}, Agents: []subject.Agent{"main"}}
		switch name {
		case "others":
			c.Agents = []subject.Agent{"butler"}
		case "watcher":
			c.Hooks = []string{"*:observe"}
		}
		nc := r.plain(r.invite(c))
		m, err := nc.Request(subject.Call(subject.Writer(name)), fmt.Appendf(nil,
			`{"agent":"main","session":"s","caller":%q,"tool":"memory:retrieve","args":{"query":"password"}}`, name), natstest.Patience)
		switch {
		case name == "watcher":
			if !errors.Is(err, nats.ErrNoResponders) {
				t.Errorf("an observer has a tool run: %v", err)
			}
		case err != nil:
			t.Errorf("%s: %v", name, err)
		case want != (m.Header.Get(bus.ErrorHeader) == ""):
			t.Errorf("%s: %v %s", name, m.Header, m.Data)
		}
	}
}

// What somebody sends who was invited as a listener is from outside, whether they register or not.
func TestAnInvitedListenerIsOutside(t *testing.T) {
	r := run(t)
	nc := r.plain(r.invite(rights.Charter{Name: "bell", Listeners: []subject.Writer{"bell"}}))
	if _, err := nc.Request("agent.main.o.sense.input.bell", []byte(`{"text":"what is 2+2?"}`), natstest.Patience); err != nil {
		t.Fatal(err)
	}
	r.turn("o", "what is 3+3?") // after it
	outside := map[subject.Writer]bool{}
	for _, c := range r.commits(subject.Ref{Agent: "main", Session: "o"}) {
		for _, e := range c.Events {
			var p event.Perceived
			if e.Type == event.TypePerceived {
				if err := e.DataAs(&p); err != nil {
					t.Fatal(err)
				}
				outside[p.Writer] = p.Outside
			}
		}
	}
	if !outside["bell"] || outside["witness"] {
		t.Errorf("from outside are %v", outside)
	}
}

// Nobody is invited as a listener with a name that is somebody else's already.
func TestTheNameOfAListenerIsFree(t *testing.T) {
	config := filepath.Join(t.TempDir(), "skandha.yaml")
	text := "agents: {main: {}}\npeople: {ann: {accounts: [cli]}, bob: {}}\n" +
		"listeners: {cron: {clock: {session: clock, entries: {morning: {schedule: \"30 8 * * *\", text: hello}}}}}\n"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	r := runWith(t, quiet, config)
	for name, want := range map[subject.Writer]string{
		"cli": "an account of ann", "clock": "a listener of the listener service", "ada": "your own account", "bell": "",
	} {
		_, err := r.sys.Core().Identities().Do(natstest.Context(t), coreapi.IdentitiesQuery{
			Op: coreapi.IdentityInvite, Bearer: true, Caller: "ada",
			Charter: &rights.Charter{Name: subject.Identity(name), Listeners: []subject.Writer{name}},
		})
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("inviting %s: %v, want %q", name, err, want)
		}
	}
}
