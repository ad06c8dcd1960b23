package mcp_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"skandha.dev/services/toolrunner/mcp"
)

func TestServersAreAddedAndRemovedWhileItRuns(t *testing.T) {
	file := filepath.Join(t.TempDir(), mcp.AddedFile)
	fixed := serve(t, raw{tools: `[` + good + `]`})
	r := newRigWith(t, nil, mcp.Options{Recheck: 20 * time.Millisecond})
	r.group.Follow(t.Context(), mcp.Config{Servers: fixed}, file)
	r.tool("evil:good")
	if err := mcp.Add(file, "more", fixed["evil"]); err != nil {
		t.Fatal(err)
	}
	r.tool("more:good")
	if err := mcp.Add(file, "more", fixed["evil"]); !errors.Is(err, mcp.ErrExists) {
		t.Errorf("added twice: %v", err)
	}
	if err := os.WriteFile(file, []byte("mcp: {servers: {more: {"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.logged("cannot be read")
	if got := r.group.Names(); !slices.Equal(got, []string{"evil:good", "more:good"}) {
		t.Errorf("with a file that cannot be read it offers %v", got)
	}
	if err := os.WriteFile(file, []byte("mcp: {servers: {}}"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.until("more has gone", func() bool { return r.group.Get("more:good") == nil })
	states := r.group.States()
	if len(states) != 1 || states[0].Name != "evil" || !states[0].Connected || states[0].Added || len(states[0].Tools) != 1 {
		t.Errorf("the states are %+v", states)
	}
	if err := mcp.Remove(file, "evil"); !errors.Is(err, mcp.ErrNone) {
		t.Errorf("a server of the configuration is removed: %v", err)
	}
}

func TestManyAddAtOnce(t *testing.T) {
	file := filepath.Join(t.TempDir(), mcp.AddedFile)
	var all sync.WaitGroup
	for _, name := range []string{"a", "b", "c", "d"} {
		all.Go(func() {
			if err := mcp.Add(file, name, mcp.Server{Command: []string{"x"}, Env: map[string]string{"K": "env:V"}}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	c, err := mcp.Added(file)
	if err != nil || len(c.Servers) != 4 {
		t.Errorf("there are %d servers, %v", len(c.Servers), err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file is %v, %v", info.Mode(), err)
	}
}

func TestEverythingThatIsWrongIsReported(t *testing.T) {
	file := filepath.Join(t.TempDir(), "skandha.yaml")
	for servers, want := range map[string]string{
		`{web: {url: "https://example.com/mcp"}}`:   `reserved`,
		`{"a b": {url: "https://example.com/mcp"}}`: `the name "a b" is not valid`,
		`{a: {}}`: `mcp.servers.a.url: set either url or command`,
		`{a: {url: "https://example.com", command: [x]}}`:                  `set either url or command`,
		`{a: {url: "https://u:p@example.com/"}}`:                           `put credentials into token or headers`,
		`{a: {url: "ftp://example.com/"}}`:                                 `url: want http://HOST:PORT/PATH`,
		`{a: {url: "https://example.com/", network: true}}`:                `are for servers with a command`,
		`{a: {command: [x], token: "env:X"}}`:                              `are for servers with a url`,
		`{a: {command: [x], isolation: jail}}`:                             `isolation is "jail"`,
		`{a: {command: [x], dir: /x}}`:                                     `dir: requires isolation: host`,
		`{a: {command: [x], read: [x]}}`:                                   `not an absolute path`,
		`{a: {command: [x], read: [/]}}`:                                   `not an absolute path`,
		`{a: {command: [x], tools: {risk: {"*": none}}}}`:                  `tools.risk.* is "none"`,
		`{a: {command: [x], tools: {enable: ["["]}}}`:                      `tools.enable: "[" is not a valid pattern`,
		`{a: {command: [x], tools: {timeout: 3h}}}`:                        `timeout`,
		`{a: {command: [x], trust: all}}`:                                  `trust is "all"`,
		`{a: {comand: [x]}}`:                                               `did you mean command?`,
		`{a: {url: "https://example.com/", headers: {"a b": x}}}`:          `not the name of a header`,
		`{a: {url: "https://example.com/", oauth: {client_id: x}}}`:        `oauth: issuer, client_id and client_secret are required`,
		`{a: {url: "https://example.com/", token: "env:SKANDHA_NO_SUCH"}}`: `mcp.servers.a.token: the environment variable SKANDHA_NO_SUCH is not set`,
	} {
		if err := os.WriteFile(file, []byte("mcp: {servers: "+servers+"}"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := mcp.CheckFile(file); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), ":1: ") {
			t.Errorf("%s: %v, want %q with its line", servers, err, want)
		}
	}
}
