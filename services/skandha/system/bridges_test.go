package system_test

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"skandha.dev/pkg/event"
	"skandha.dev/services/skandha/system"
	"skandha.dev/services/test/natstest"
	"skandha.dev/services/uibridge"
	"skandha.dev/services/uibridge/access"
	"skandha.dev/services/uibridge/contract"
)

// anotherBridge runs beside the one of the system, with a different owner.
func anotherBridge(t *testing.T, s *system.System) *uibridge.Service {
	t.Helper()
	b, err := s.Connect(natstest.Context(t), "uibridge")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	cfg := uibridge.Config{
		Listen: "127.0.0.1:0", Config: access.Config{Tokens: []access.Token{{Name: "bob", Token: "bob-0123456789abcdef"}}},
	}
	ui, err := uibridge.New(cfg, uibridge.Options{}, uibridge.Deps{Bus: b, Log: natstest.Logger(t), DataDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	if err := ui.Listen(natstest.Context(t)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- ui.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the other bridge ended with %v", err)
		}
	})
	natstest.Eventually(t, "the other bridge is ready", func() bool { return ui.Ready() == nil })
	return ui
}

// program shows a token to a bridge.
func program(t *testing.T, page, token string) *surfer {
	return &surfer{t, page, &http.Client{Transport: shows{token}}}
}

type shows struct{ token string }

// RoundTrip implements [http.RoundTripper].
func (s shows) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+s.token)
	return http.DefaultTransport.RoundTrip(r)
}

// Two bridges on one bus: what is said at one is seen at the other, and when a person
// at each answers one request at the same time, the first answer wins, and both see
// whose it was.
func TestTwoBridgesOnOneBus(t *testing.T) {
	dir := t.TempDir()
	s := startWithUI(t,
		system.Config{Data: dir, Workspace: filepath.Join(dir, "workspace"), UI: &system.UI{Listen: "127.0.0.1:0"}})
	ann, bob := program(t, "http://"+s.UIAddr(), s.UIToken()), program(t, anotherBridge(t, s).URL(),
		"bob-0123456789abcdef")
	annSees, bobSees := ann.events("s"), bob.events("s")
	file := filepath.Join(dir, "workspace", "a.txt")
	by := map[string]int{}
	for range 8 {
		if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		if status, body := ann.post("/v1/agents/main/sessions/s/inputs",
			map[string]any{"input": "delete a.txt"}); status != http.StatusAccepted {
			t.Fatalf("an input is answered %d %s", status, body)
		}
		var asked [2]contract.ToolCallRequest
		for i, events := range []string{
			await(annSees, contract.OnToolCallRequest, ""), await(bobSees, contract.OnToolCallRequest, ""),
		} {
			if err := json.Unmarshal([]byte(events), &asked[i]); err != nil {
				t.Fatal(err)
			}
		}
		if asked[0].ConfirmationID != asked[1].ConfirmationID || asked[0].Hash != asked[1].Hash {
			t.Fatalf("one is asked %+v, the other %+v", asked[0], asked[1])
		}
		answered := make(chan int, 2)
		for p, approved := range map[*surfer]bool{ann: true, bob: false} {
			go func() {
				status, _ := p.post("/v1/agents/main/sessions/s/confirmations", map[string]any{
					"confirmationId": asked[0].ConfirmationID, "hash": asked[0].Hash, "approved": approved,
				})
				answered <- status
			}()
		}
		for range 2 {
			if status := <-answered; status != http.StatusAccepted {
				t.Errorf("an answer is answered %d", status)
			}
		}
		var seen [2]contract.ConfirmationResolved
		for i, events := range []string{
			await(annSees, contract.OnConfirmationResolved, ""), await(bobSees, contract.OnConfirmationResolved, ""),
		} {
			if err := json.Unmarshal([]byte(events), &seen[i]); err != nil {
				t.Fatal(err)
			}
		}
		if seen[0].ConfirmationID != asked[0].ConfirmationID || seen[1].ConfirmationID != asked[0].ConfirmationID {
			t.Fatalf("asked for %s, it was resolved as %+v and %+v", asked[0].ConfirmationID, seen[0], seen[1])
		}
		if seen[0].By != seen[1].By || seen[0].Outcome != seen[1].Outcome {
			t.Errorf("one sees %+v, the other %+v", seen[0], seen[1])
		}
		won := map[event.ConfirmOutcome]string{event.Approved: "ui-owner", event.Denied: "ui-bob"}[seen[0].Outcome]
		if string(seen[0].By) != won {
			t.Errorf("%s is by %s", seen[0].Outcome, seen[0].By)
		}
		by[won]++
		if await(annSees, contract.OnTurnEnd, "") == "" || await(bobSees, contract.OnTurnEnd, "") == "" {
			t.Fatal("the turn does not end")
		}
		if _, err := os.Stat(file); os.IsNotExist(err) != (seen[0].Outcome == event.Approved) {
			t.Errorf("after %s the file: %v", seen[0].Outcome, err)
		}
	}
	t.Logf("who was first: %v", by)
}
