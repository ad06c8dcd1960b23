package main

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"skandha.dev/services/skandha/system"
	"skandha.dev/services/test/foreigntest"
	"skandha.dev/services/test/natstest"
	"skandha.dev/services/toolrunner/mcp"
)

// A server that is added while the system runs is connected, and gone once it is removed.
func TestAnMCPServerIsAddedToARunningSystem(t *testing.T) {
	foreigntest.Need(t, "python3")
	data := t.TempDir()
	sys, err := system.Start(natstest.Context(t), system.Config{Data: data, Provider: "offline", Log: natstest.Logger(t), Sync: "relaxed"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sys.Stop)
	g := &globals{Data: data, Log: "error"}
	server, err := filepath.Abs("../toolrunner/mcp/testdata/server.py")
	if err != nil {
		t.Fatal(err)
	}
	add := mcpAddCmd{Name: "py", Command: []string{"python3", server}, Host: true, Trust: mcp.TrustNone, Wait: natstest.Patience}
	if err := add.Run(t.Context(), g); err != nil {
		t.Fatal(err)
	}
	list, err := g.mcpServers(t.Context())
	if err != nil || len(list) != 1 || !list[0].Connected || !slices.Contains(list[0].Tools, "py:echo") || list[0].Isolation != "host" {
		t.Fatalf("the servers are %+v, %v", list, err)
	}
	home := mcp.Home(system.StateDir(data), "py") // of one in the sandbox
	if err := os.MkdirAll(home, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := (&mcpRemoveCmd{Name: "py"}).Run(t.Context(), g); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(home); err != nil {
		t.Errorf("its home: %v", err)
	}
	natstest.Eventually(t, "it is gone", func() bool {
		list, err := g.mcpServers(t.Context())
		return err == nil && len(list) == 0
	})
	if err := (&mcpRemoveCmd{Name: "py", Home: true}).Run(t.Context(), g); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(home); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its home: %v", err)
	}
	if err := (&mcpRemoveCmd{Name: "py", Home: true}).Run(t.Context(), g); !errors.Is(err, mcp.ErrNone) {
		t.Errorf("removed again: %v", err)
	}
	for _, dir := range []string{data, filepath.Dir(data), filepath.Join(data, "nats")} {
		add := mcpAddCmd{Name: "spy", Command: []string{"true"}, Read: []string{dir}, Trust: mcp.TrustNone}
		if err := add.Run(t.Context(), g); err == nil || !strings.Contains(err.Error(), "keeps its keys and data") {
			t.Errorf("--read %s: %v", dir, err)
		}
	}
}

// Without waiting, it is still said what was added.
func TestAddingWithoutWaitingSaysSo(t *testing.T) {
	out, all, err := says(t, "mcp", "add", "--data", t.TempDir(), "--wait", "0", "x", "--", "true")
	if err != nil || !strings.HasPrefix(out, "Added x.") {
		t.Errorf("%v\n%s", err, all)
	}
}

// Programs that install what they run get the network, unless they run on the host anyway.
func TestLaunchersGetTheNetwork(t *testing.T) {
	for _, c := range []struct {
		command []string
		host    bool
		network bool
	}{
		{[]string{"npx", "-y", "x"}, false, true},
		{[]string{"/usr/bin/uvx", "x"}, false, true},
		{[]string{"node", "x"}, false, false},
		{[]string{"npx", "-y", "x"}, true, false},
	} {
		s, note := (&mcpAddCmd{Command: c.command, Host: c.host}).server()
		if s.Network != c.network || (note != "") != c.network {
			t.Errorf("%v on the host %v: network %v, %q", c.command, c.host, s.Network, note)
		}
	}
}
