package backend_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"skandha.dev/pkg/bus"
	"skandha.dev/services/test/natstest"
	"skandha.dev/services/uibridge/contract"
	"skandha.dev/services/uibridge/hub"
)

// An input is refused with the reason when too many are waiting or the log cannot store; a
// command is accepted even then.
func TestWhatCoresSayRefusesInputs(t *testing.T) {
	sys := startSystem(t)
	r := newRig(t, sys, hub.Config{})
	core, err := sys.Connect(natstest.Context(t), "core")
	if err != nil {
		t.Fatal(err)
	}
	defer core.Close()
	ref := session("overload")
	r.say(ref, "hello") // subscribes to the cores' beacons
	for _, c := range []struct {
		says   bus.Beacon
		code   contract.Code
		status int
		text   string
	}{
		{bus.Beacon{Backlog: 7, Limit: 7}, contract.CodeOverloaded, http.StatusTooManyRequests, "7 inputs wait"},
		{
			bus.Beacon{Storage: &bus.StorageFault{Reason: "it is tired"}},
			contract.CodeUnavailable,
			http.StatusServiceUnavailable, "the bus cannot store: it is tired; the message was not stored",
		},
	} {
		var e *contract.Error
		natstest.Eventually(t, c.text, func() bool { // the system's own core overrides it once a second
			if err := core.PublishBeacon(natstest.Context(t), c.says); err != nil {
				t.Fatal(err)
			}
			_, err := r.Submit(natstest.Context(t), r.ann, contract.Submission{Ref: ref, Text: "hi"})
			return errors.As(err, &e) && e.Code == c.code
		})
		if e.Status() != c.status || e.RetryAfterMS <= 0 || !strings.Contains(e.Message, c.text) {
			t.Errorf("refused with %+v", e)
		}
		if _, err := r.Submit(natstest.Context(t), r.ann, contract.Submission{Ref: ref, Text: "/help"}); err != nil {
			t.Errorf("a command: %v", err)
		}
	}
}
