package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/test/natstest"
)

func TestToolsShowWhatWasCounted(t *testing.T) {
	for want, i := range map[string]coreapi.ToolInfo{
		"– –":       {SuccessRate: 0.5},
		"1/1 7 ms":  {Used: 1, Succeeded: 1, SuccessRate: 0.667, MeanLatencyMS: 7},
		"3/12 0 ms": {Used: 12, Succeeded: 3},
	} {
		if got := succeeded(i) + " " + meanLatency(i); got != want {
			t.Errorf("%+v: %s, want %s", i, got, want)
		}
	}
}

// Core does not keep such a session in memory, and yet its turn is not over.
func TestStatusCountsASessionThatWaitsForAConfirmation(t *testing.T) {
	w := newWorld(t)
	w.plug(nil)
	ref := subject.Ref{Agent: "main", Session: "asked"}
	if _, err := w.c.Say(t.Context(), ref, event.Input{Text: `call kit:risky {"text":"x"}`}); err != nil {
		t.Fatal(err)
	}
	var out string
	natstest.Eventually(t, "the status shows the session", func() bool {
		var err error
		if out, _, err = says(t, "status", "--data", w.data); err != nil {
			t.Fatal(err)
		}
		return strings.Contains(out, "1 session waits for confirmation: main/asked")
	})
	if !strings.Contains(out, " 1 open session,") {
		t.Errorf("%s", out)
	}
}

func TestAskSaysWhyAnApprovalWasNeeded(t *testing.T) {
	w := newWorld(t)
	w.plug(nil)
	_, all, err := says(t, "ask", "--data", w.data, `call kit:risky {"text":"x"}`)
	why, refused := strings.Index(all, "! kit:risky requires approval: "), strings.LastIndex(all, "no terminal to ask at")
	if err == nil || why < 0 || refused < why {
		t.Errorf("%v\n%s", err, all)
	}
}

func TestPluginsShowWhatIsRequiredAndMissing(t *testing.T) {
	data := t.TempDir()
	config := filepath.Join(t.TempDir(), "skandha.yaml")
	if err := os.WriteFile(config, []byte("hooks: {before_act: {required: [no-secrets]}}"), 0o600); err != nil {
		t.Fatal(err)
	}
	upOn(t, data, "--ui", "off", "--config", config)
	out, all, err := says(t, "plugins", "--data", data)
	if err != nil ||
		!strings.Contains(out,
			"no-secrets is not asked at before_act: it is required but not registered; all calls there are denied") {
		t.Errorf("%v\n%s", err, all)
	}
	for at, has := range map[string]bool{"before_act": true, "before_plan": false} {
		out, _, err := says(t, "plugins", "order", at, "--data", data)
		if err != nil ||
			strings.Contains(out, "! no-secrets is not asked at before_act: it is required but not registered") != has {
			t.Errorf("%s: %v\n%s", at, err, out)
		}
	}
	for _, op := range []string{"suspend", "resume", "unload"} {
		if _, all, err := says(t, "plugins", op, "nope", "--data", data); err == nil ||
			all != "skandha: no plugin nope is registered or was recently; skandha plugins lists them\n" {
			t.Errorf("%s: %v\n%s", op, err, all)
		}
	}
}
