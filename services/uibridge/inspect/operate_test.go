package inspect_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/senses"
	"skandha.dev/services/test/natstest"
	"skandha.dev/services/uibridge/contract"
)

// listens reports a listener, as its process does.
func (w *world) listens(name subject.Writer, kind, media string) {
	w.Helper()
	r := senses.Report{
		Listener: name, Kind: kind, State: "ok", Since: time.Now().UTC(), At: time.Now().UTC(), Instance: "listener-1",
		Media: media, On: media != "",
	}
	if err := senses.Put(natstest.Context(w.T), w.client.Journal, r); err != nil {
		w.Fatal(err)
	}
}

// stuck is a message in the outbox that was given up, and its id.
func (w *world) stuck(agent, n, text string) (id string) {
	w.Helper()
	id = "irc.3b644de377c32c78.0000000000000000000" + n + "-000"
	body, err := json.Marshal(map[string]any{
		"agent": agent, "session": "ops", "via": "irc", "key": "k" + n, "state": coreapi.OutboxDead, "error": "no such channel",
		"attempts": 3, "stored": time.Now().UTC(),
		"delivery": map[string]any{"kind": "notice", "to": "#ops", "text": text},
	})
	if err == nil {
		_, err = natstest.Join(w.T, w.system, "test").Bucket(journal.BucketOutbox).Put(natstest.Context(w.T), id, body, journal.Fence{})
	}
	if err != nil {
		w.Fatal(err)
	}
	natstest.Eventually(w.T, "core has the message", func() bool {
		return slices.ContainsFunc(call[coreapi.OutboxPage](w, "listOutbox", nil).Messages,
			func(m coreapi.OutboxMessage) bool { return m.ID == id })
	})
	return id
}

// A person sees how the listeners are, and switches a camera off.
func TestListenersAreShownAndSwitched(t *testing.T) {
	w := newWorld(t)
	w.listens("hall", "camera", senses.MediaCamera)
	w.listens("irc", "irc", "")
	list := call[[]senses.Listed](w, "listListeners", nil)
	if len(list) != 2 || list[0].Listener != "hall" || !list[0].On || list[0].Switch != nil || list[1].Kind != "irc" {
		t.Fatalf("listed: %+v", list)
	}
	off := call[[]senses.Listed](w, "switchListener", map[string]any{"listener": "hall", "on": false})
	if len(off) != 1 || off[0].Switch == nil || off[0].Switch.On || off[0].Switch.By != "ui-ada" ||
		off[0].Light != senses.LightUnconfirmed {
		t.Errorf("switched off: %+v", off)
	}
	list = call[[]senses.Listed](w, "listListeners", nil)
	if s := list[0].Switch; s == nil || s.On || list[1].Switch != nil {
		t.Errorf("then: %+v", list)
	}
}

// A dead message is sent again, another one dropped; what waits can be dropped alone.
func TestDeadMessagesAreDecidedOn(t *testing.T) {
	w := newWorld(t)
	one := w.stuck("main", "1", strings.Repeat("語", 2000))
	two := w.stuck("other", "2", "two")
	page := call[coreapi.OutboxPage](w, "listOutbox", map[string]any{"state": "dead", "limit": 1})
	if len(page.Messages) != 1 || !page.More {
		t.Errorf("one of two: %+v", page)
	}
	dead := call[coreapi.OutboxPage](w, "listOutbox", nil).Messages
	if len(dead) != 2 || dead[0].ID != one || dead[0].Attempts != 3 || dead[0].Error != "no such channel" ||
		dead[0].To != "#ops" || len(dead[0].Text) > 4010 || !strings.HasSuffix(dead[0].Text, "…") {
		t.Fatalf("listed: %+v", dead)
	}
	again := call[coreapi.OutboxPage](w, "outboxAction", map[string]any{"op": "resend", "id": one}).Messages
	if len(again) != 1 || again[0].State != coreapi.OutboxWaiting || again[0].Attempts != 0 {
		t.Errorf("sent again: %+v", again)
	}
	if got := w.refused(ada, "outboxAction", map[string]any{"op": "resend", "id": one}); got != "conflict" {
		t.Errorf("what waits, sent again: %s", got)
	}
	for _, id := range []string{one, two} {
		gone := call[coreapi.OutboxPage](w, "outboxAction", map[string]any{"op": "drop", "id": id}).Messages
		if len(gone) != 0 {
			t.Errorf("dropped: %+v", gone)
		}
	}
	if left := call[coreapi.OutboxPage](w, "listOutbox", nil).Messages; len(left) != 0 {
		t.Errorf("left: %+v", left)
	}
}

// To look needs the right to see, to change something the right to administer. Messages are those
// of the agents that a token may access; listeners are for tokens of all agents.
func TestWhoMayOperate(t *testing.T) {
	w := newWorld(t)
	w.listens("hall", "camera", senses.MediaCamera)
	id := w.stuck("main", "1", "one")
	methods := map[string]any{
		"listListeners": nil, "switchListener": map[string]any{"listener": "hall", "on": false},
		"listOutbox": nil, "outboxAction": map[string]any{"op": "resend", "id": id}, "listAudit": nil,
	}
	of := func(rights ...contract.Right) contract.Principal {
		return contract.Principal{Name: "bob", Writer: "ui-bob", Rights: rights}
	}
	for _, c := range []struct {
		who contract.Principal
		may []string
	}{
		{of(contract.Talk, contract.Approve), nil},
		{of(contract.See), []string{"listListeners", "listOutbox"}},
		{of(contract.Administer), []string{"switchListener", "listAudit"}},
		{of(contract.See, contract.Administer), []string{"listListeners", "listOutbox", "switchListener", "outboxAction", "listAudit"}},
	} {
		for method, params := range methods {
			if got := w.refused(c.who, method, params); (got != "forbidden") != slices.Contains(c.may, method) {
				t.Errorf("%s with the rights %s: %s", method, c.who.Rights, got)
			}
		}
	}
	limited := of(contract.AllRights()...)
	limited.Agents = []subject.Agent{"other"}
	for method, want := range map[string]string{
		"listListeners": "forbidden", "switchListener": "forbidden", "outboxAction": "not_found", "listAudit": "forbidden",
	} {
		if got := w.refused(limited, method, methods[method]); got != want {
			t.Errorf("%s with a token for another agent: %s, want %s", method, got, want)
		}
	}
	page, err := try[coreapi.OutboxPage](w, limited, "listOutbox", nil)
	if err != nil || len(page.Messages) != 0 {
		t.Errorf("the outbox with a token for another agent: %+v %v", page, err)
	}
	limited.Agents = []subject.Agent{"main"}
	if got := w.refused(limited, "outboxAction", map[string]any{"op": "drop", "id": id}); got != "it is not refused: no error" {
		t.Errorf("a message of the token's agent: %s", got)
	}
}
