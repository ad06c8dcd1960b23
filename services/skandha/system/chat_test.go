package system_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"skandha.dev/services/skandha/system"
	"skandha.dev/services/test/irctest"
	"skandha.dev/services/test/natstest"
)

// TestAPersonInAChannelApprovesACall: the whole way, from a message in a channel to the file that the call
// writes, and back.
func TestAPersonInAChannelApprovesACall(t *testing.T) {
	irc := irctest.Start(t)
	dir := t.TempDir()
	files := map[string]string{"rules.yaml": `
rules:
  - name: note
    match: ['please note (?P<what>.*)']
    calls: [{tool: 'file_system:write_file', args: {path: note.txt, content: '{{.what}}'}}]
results: {default: {success: 'done', failure: 'not done: {{.error.message}}'}}
missing: 'no {{.tool}}'
fallback: 'what?'
`, "config.yaml": fmt.Sprintf(`
policy: [{tool: "file_system:write_file", effect: confirm}]
listeners:
  irc:
    net: {server: %q, insecure: true, identify: host, rooms: {"#ops": {session: ops}}, allow: ["~ann@127.0.0.1"]}
`, irc.Addr)}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	data := t.TempDir()
	s, err := system.Start(natstest.Context(t), system.Config{
		Data: data, ConfigFile: filepath.Join(dir, "config.yaml"), Sync: "relaxed", Provider: "offline",
		OfflineRules: filepath.Join(dir, "rules.yaml"), Log: natstest.Logger(t),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	ann, eve := irc.Dial(t, "ann"), irc.Dial(t, "eve")
	ann.Join("#ops", "skandha")
	eve.Join("#ops", "skandha")
	asked := func(n int) (code string) {
		natstest.Eventually(t, "a request for approval", func() bool {
			seen := 0
			for _, l := range ann.Lines() {
				if _, after, found := strings.Cut(l.Text, "Answer: yes "); found {
					seen++
					code, _, _ = strings.Cut(after, ",")
				}
			}
			return seen == n
		})
		return code
	}
	written := func() string {
		var text string
		_ = filepath.WalkDir(data, func(path string, e os.DirEntry, err error) error {
			if err == nil && e.Name() == "note.txt" {
				b, _ := os.ReadFile(path)
				text = string(b)
			}
			return nil
		})
		return text
	}
	ann.Say("#ops", "skandha: please note buy milk")
	code := asked(1)
	eve.Say("#ops", "yes "+code)
	ann.Say("#ops", "no "+code+" not now")
	natstest.Eventually(t, "the denial", func() bool { return ann.Saw("PRIVMSG #ops :not done") })
	if text := written(); text != "" {
		t.Fatalf("the denied call has written %q", text)
	}
	ann.Say("#ops", "skandha: please note buy bread")
	ann.Say("#ops", "yes "+asked(2))
	natstest.Eventually(t, "the answer", func() bool { return ann.Saw("PRIVMSG #ops :done") })
	if text := written(); text != "buy bread" {
		t.Errorf("the call has written %q", text)
	}
}
