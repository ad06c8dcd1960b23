package rightstest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/rights"
	"skandha.dev/services/test/natstest"
)

// The bus takes no more inputs from a listener that floods it, while others are answered. Once enough of them are done, it
// may send again, and every input that was acknowledged has ended.
func TestAListenerThatFloods(t *testing.T) {
	config := filepath.Join(t.TempDir(), "skandha.yaml")
	if err := os.WriteFile(config, []byte("agents: {main: {}}\nlimits: {per_listener: 16}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := runWith(t, quiet, config)
	nc := r.plain(r.invite(rights.Charter{Name: "flood", Listeners: []subject.Writer{"flood"}}))
	const most = 20_000
	taken := 0
	for ; taken < most; taken++ {
		subj := fmt.Sprintf("agent.main.f%d.sense.input.flood", taken)
		_, err := nc.Request(subj, []byte(`{"text":"what is 2+2?"}`), natstest.Patience)
		if errors.Is(err, nats.ErrNoResponders) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if taken == most {
		t.Fatalf("all of %d inputs are taken", most)
	}
	t.Logf("%d inputs are taken, then they are refused", taken)
	if end := r.turn("calm", "what is 3+3?"); end.Answer == "" {
		t.Error("nobody else is answered")
	}
	identity := func() coreapi.Identity {
		page, err := r.sys.Core().Identities().Do(natstest.Context(t), coreapi.IdentitiesQuery{Name: "flood", Caller: "test"})
		if err != nil || len(page.Identities) != 1 {
			t.Fatalf("%+v %v", page, err)
		}
		return page.Identities[0]
	}
	natstest.Eventually(t, "the audit log says so", func() bool {
		lines := r.denials()
		return len(lines) > 0 && strings.Contains(lines[0], "inputs of listener flood")
	})
	natstest.Eventually(t, "the listener may send again", func() bool {
		_, err := nc.Request("agent.main.again.sense.input.flood", []byte(`{"text":"what is 4+4?"}`), time.Second)
		return err == nil
	})
	if id := identity(); !id.Muted.IsZero() || id.State != coreapi.IdentityActive {
		t.Errorf("afterwards it is %+v", id)
	}
}
