package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/rights"
)

// Credentials name the bus as their holder reaches it: from the host, or from a container.
func TestInvitationsNameTheBusAsTheirHolderReachesIt(t *testing.T) {
	const host, container = "nats://127.0.0.1:4333", "nats://nats:4222"
	for name, c := range map[string]struct {
		g    globals
		o    outputFlags
		want string
	}{
		"host to host":           {globals{NATS: host}, outputFlags{For: "env"}, "export SKANDHA_NATS='nats://T@127.0.0.1:4333'\n"},
		"host to container":      {globals{NATS: "tls://localhost:4333"}, outputFlags{For: "compose"}, `"tls://T@nats:4222"`},
		"container to host":      {globals{NATS: container, Outer: host}, outputFlags{For: "env"}, "'nats://T@127.0.0.1:4333'"},
		"container to container": {globals{NATS: container, Outer: host}, outputFlags{For: "compose"}, `"nats://T@nats:4222"`},
		"elsewhere":              {globals{NATS: "nats://bus.example:1"}, outputFlags{For: "compose"}, `"nats://T@bus.example:1"`},
		"named":                  {globals{NATS: host}, outputFlags{For: "compose", At: "tls://other:9"}, `"tls://T@other:9"`},
		"never with a token":     {globals{NATS: "nats://secret@127.0.0.1:1"}, outputFlags{For: "env"}, "'nats://T@127.0.0.1:1'"},
	} {
		if got, err := c.o.text(&c.g, rights.Charter{Name: "guest"}, coreapi.Credential{Token: "T"}); err != nil || !strings.Contains(got, c.want) {
			t.Errorf("%s: printed %q, %v, want %q", name, got, err, c.want)
		}
	}
}

// A restore says who may connect afterwards, and warns of a bus without rights.
func TestARestoreSaysWhoMayConnect(t *testing.T) {
	for _, c := range []struct{ was, is, want string }{
		{"", "", ""},
		{"A", "", "WARNING"},
		{"", "A", "invite every plugin"},
		{"A", "B", "plugins rotate NAME"},
		{"A", "A", "since"},
	} {
		if got := strings.Join(rightsAfter(c.was, c.is), "\n"); !strings.Contains(got, c.want) || (got == "") != (c.want == "") {
			t.Errorf("from account %q to %q it says %q, want %q", c.was, c.is, got, c.want)
		}
	}
}

// Credentials are made once: what could not be written is said before anybody is invited.
func TestNobodyIsInvitedForNothing(t *testing.T) {
	there := filepath.Join(t.TempDir(), "there")
	if err := os.WriteFile(there, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	g := &globals{NATS: "nats://127.0.0.1:1"} // nobody is asked
	for want, cmd := range map[string]pluginsInviteCmd{
		"--out":             {Name: "n", outputFlags: outputFlags{For: "env", Out: there}},
		"nothing to do":     {Name: "n", charterFlags: charterFlags{Storage: true}, outputFlags: outputFlags{For: "go"}},
		"which these progr": {Name: "n", charterFlags: charterFlags{See: true}, outputFlags: outputFlags{For: "go", At: "tls://x"}},
	} {
		if err := cmd.Run(t.Context(), g); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// A listener sends to the session that has its name, unless others are named.
func TestTheSessionsOfAListener(t *testing.T) {
	for want, f := range map[string]charterFlags{
		"--listener bell --session bell":       {Listener: []string{"bell"}},
		"--listener bell --session hall,porch": {Listener: []string{"bell"}, Session: []string{"hall", "porch"}},
		"--listener bell --session '*'":        {Listener: []string{"bell"}, Session: []string{"*"}},
		"--session porch":                      {Session: []string{"porch"}},
		"--tools t":                            {Tools: []string{"t"}},
	} {
		if got := may(f.charter("n")); got != want {
			t.Errorf("the charter is %q, want %q", got, want)
		}
	}
}
