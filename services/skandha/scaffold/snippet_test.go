package scaffold_test

import (
	"encoding/json"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"skandha.dev/pkg/plugin"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/rights"
	"skandha.dev/services/skandha/scaffold"
	"skandha.dev/services/test/foreigntest"
	"skandha.dev/services/test/natstest"
)

// interpreters are the commands that run a snippet, as its first lines say.
var interpreters = map[string][]string{
	"go": {"go", "run"}, "node": {"node"}, "perl": {"perl"}, "python": {"python3"}, "shell": {"bash"},
}

// program is the snippet of a charter, with its credentials, as a process to be.
func program(t *testing.T, s *foreigntest.System, lang string, c rights.Charter) (run func(args ...string) *foreigntest.Process) {
	t.Helper()
	at, err := s.Invite(natstest.Context(t), c)
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(at)
	if err != nil {
		t.Fatal(err)
	}
	token := u.User.Username()
	u.User = nil
	file := string(c.Name) + map[string]string{"go": ".go", "node": ".cjs"}[lang]
	text, err := scaffold.Snippet(lang, scaffold.Invited{Charter: c, Bus: u.String(), Token: token, File: file})
	if err != nil {
		t.Fatal(err)
	}
	start := slices.Concat(interpreters[lang], []string{file})
	if !strings.Contains(text, strings.Join(start, " ")) || strings.Contains(text, "<no value>") {
		t.Errorf("it does not say that it is run by %q, or has a part of a template:\n%s", start, text)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	env := []string{"GOWORK=off", "GOFLAGS="}
	start[0] = foreigntest.Need(t, start[0])
	if lang == "go" { // go run does not pass on signals
		binary := filepath.Join(dir, "program")
		foreigntest.Spawn(t, dir, env, start[0], "build", "-o", binary, file).Wait()
		start = []string{binary}
	}
	return func(args ...string) *foreigntest.Process {
		return foreigntest.Spawn(t, dir, env, start[0], append(start[1:], args...)...)
	}
}

func revoke(t *testing.T, s *foreigntest.System, name subject.Identity) {
	t.Helper()
	caller, err := natstest.Join(t, s, "people").NewCaller()
	if err != nil {
		t.Fatal(err)
	}
	body, err := json.Marshal(coreapi.IdentitiesQuery{Op: coreapi.IdentityRevoke, Name: name, Caller: "test"})
	if err == nil {
		_, err = caller.Request(natstest.Context(t), subject.Service(coreapi.AdminName, coreapi.VerbIdentities), coreapi.AdminName, body)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// The program of each language talks to the agent as a listener; as a plugin it is asked and answers; and it follows
// what it may see. After a restart of the bus it does so again. A signal unregisters it. When it is revoked it says so
// and ends.
func TestSnippetsRun(t *testing.T) {
	for _, lang := range scaffold.SnippetLanguages() {
		t.Run(lang, func(t *testing.T) {
			s := foreigntest.Start(t)
			name := subject.Identity("guest-" + lang)
			listener := rights.Charter{Name: name + "-bell", Listeners: []subject.Writer{subject.Writer(name)}}
			say := program(t, s, lang, listener)
			p := say(`say "ünï"`)
			p.Wait()
			if got := strings.TrimSpace(p.Out()); !strings.Contains(got, `"ünï"`) {
				t.Errorf("the agent's answer is %q", got)
			}

			follow := program(t, s, lang, rights.Charter{Name: name + "-eye", See: true})()
			follow.Await("is connected")
			run := program(t, s, lang, rights.Charter{
				Name: name, Hooks: []string{"before_act:judge", "after_act:observe"}, Tools: []string{string(name)},
			})
			p = run()
			p.Await("is active")
			s.AwaitPlugin(subject.Plugin(name), plugin.Active)
			s.AwaitTool(string(name)+":hello", true)
			end := s.Say("s-"+lang, "call "+string(name)+":hello {}")
			if len(end.Calls) != 1 || !end.Calls[0].Success || !strings.Contains(end.Answer, "hello") {
				t.Errorf("the tool: %+v", end)
			}
			for _, asked := range []string{"hook.before_act.", "hook.after_act.", "tool." + string(name)} {
				p.Await(asked)
			}
			follow.Await("skandha.reflect.recorded.v1")

			s.Restart()
			s.AwaitPlugin(subject.Plugin(name), plugin.Active)
			s.AwaitTool(string(name)+":hello", true)
			for _, p := range []*foreigntest.Process{p, follow} {
				natstest.Eventually(t, "it says once that the bus is gone", func() bool {
					return strings.Count(p.Errs(), "the bus is gone; trying again") == 1
				})
			}
			seen := strings.Count(follow.Out(), "skandha.reflect.recorded.v1")
			natstest.Eventually(t, "the tool answers, and the other one sees it", func() bool {
				end := s.Say("again-"+lang, "call "+string(name)+":hello {}")
				return len(end.Calls) == 1 && end.Calls[0].Success && strings.Count(follow.Out(), "skandha.reflect.recorded.v1") > seen
			})

			second := run()
			second.Await("is active")
			second.Leave(syscall.SIGTERM)
			if !strings.Contains(second.Errs(), string(name)+" is gone") {
				t.Errorf("it unregisters at a signal, and says %q", second.Errs())
			}
			natstest.Eventually(t, "the registry lists the other process alone", func() bool {
				return len(s.Plugin(subject.Plugin(name)).Instances) == 1
			})

			for who, p := range map[subject.Identity]*foreigntest.Process{name: p, name + "-eye": follow} {
				revoke(t, s, who)
				if p.Ended() == nil || !strings.Contains(p.Errs(), "skandha plugins invite "+string(who)) {
					t.Errorf("%s was revoked, and says %q", who, p.Errs())
				}
			}
			revoke(t, s, listener.Name)
			if p := say("hello"); p.Ended() == nil || !strings.Contains(p.Errs(), "skandha plugins invite "+string(listener.Name)) {
				t.Errorf("%s was revoked before it starts, and says %q", listener.Name, p.Errs())
			}
		})
	}
}

// What cannot run is not written.
func TestSnippetsThatCannotRun(t *testing.T) {
	for name, c := range map[string]struct {
		lang string
		in   scaffold.Invited
		want error
		says string
	}{
		"an unknown language": {"cobol", scaffold.Invited{}, scaffold.ErrLanguage, "go, node, perl, python, shell"},
		"nothing to do":       {"go", scaffold.Invited{Bus: "nats://x", Charter: rights.Charter{Name: "n"}}, scaffold.ErrSnippet, "--listener"},
		"a bus with TLS":      {"go", scaffold.Invited{Bus: "tls://x", Charter: rights.Local("n")}, scaffold.ErrSnippet, "TLS"},
	} {
		if text, err := scaffold.Snippet(c.lang, c.in); text != "" || !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %q %v", name, text, err)
		}
	}
}
