package examples_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/nats-io/nats.go"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/plugin"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/executor"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/test/foreigntest"
	"skandha.dev/services/test/natstest"
)

// write is the instruction to the model: offline rules for tests.
const write = `call file_system:write_file {"path": "%s", "content": "x"}`

func writeTo(path string) string { return strings.Replace(write, "%s", path, 1) }

// codes are how the calls of a turn ended.
func codes(end foreigntest.End) (out []tool.Code) {
	for _, c := range end.Calls {
		out = append(out, c.Code)
	}
	return out
}

// ran wants a turn with one call, which had success, or else ended with the code.
func ran(t *testing.T, end foreigntest.End, want tool.Code) {
	t.Helper()
	if got := codes(end); len(got) != 1 || got[0] != want {
		t.Fatalf("the call ended as %q, want %q: %+v", got, want, end)
	}
}

func TestTheAgentObeysAPolicyInOneFileOfPythonWhileItRuns(t *testing.T) {
	python := foreigntest.Need(t, "python3")
	s := foreigntest.Start(t)
	ran(t, s.Say("s", writeTo("secret-0.txt")), "")

	for i, how := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		p := s.Run("no-secrets", "python", python, "policy_hook.py")
		s.AwaitPlugin("no-secrets", plugin.Active)
		end := s.Say("s", writeTo("secret-1.txt"))
		ran(t, end, tool.CodeDenied)
		if !strings.Contains(end.Answer, "no file may have 'secret' in its name") {
			t.Errorf("the model does not get the reason: %q", end.Answer)
		}
		ran(t, s.Say("s", writeTo("harmless-"+how.String()+".txt")), "")
		p.Leave(how)
		s.LeftNothing("no-secrets")
		ran(t, s.Say("s", writeTo([]string{"secret-2.txt", "secret-3.txt"}[i])), "")
	}
	if _, err := os.Stat(filepath.Join(s.Workspace, "secret-1.txt")); !os.IsNotExist(err) {
		t.Errorf("the file that was denied is there: %v", err)
	}
}

// Nothing runs without a policy that the configuration requires; a guest that is killed, or stopped, is
// not waited for once its lease has ended.
func TestAPolicyThatIsKilled(t *testing.T) {
	python := foreigntest.Need(t, "python3")
	for _, how := range []syscall.Signal{syscall.SIGKILL, syscall.SIGSTOP} {
		for want, judges := range map[tool.Code][]subject.Plugin{"": nil, tool.CodeDenied: {"no-secrets"}} {
			t.Run(how.String()+" "+string(want), func(t *testing.T) {
				t.Parallel()
				s := foreigntest.StartWithLease(t, foreigntest.SoonOver, judges...)
				p := s.Run("no-secrets", "python", python, "policy_hook.py")
				s.AwaitPlugin("no-secrets", plugin.Active)
				p.Signal(how)
				ran(t, s.Say("s", writeTo("a.txt")), want)
				s.AwaitPlugin("no-secrets", plugin.Gone)
				ran(t, s.Say("s", writeTo("a.txt")), want)
				p.Kill()
			})
		}
	}
}

// A laptop that was closed: the lease has ended, and the policy comes back.
func TestAPolicyThatWasSilentForTooLongRegistersAgain(t *testing.T) {
	python := foreigntest.Need(t, "python3")
	s := foreigntest.StartWithLease(t, foreigntest.SoonOver)
	p := s.Run("no-secrets", "python", python, "policy_hook.py")
	s.AwaitPlugin("no-secrets", plugin.Active)
	p.Signal(syscall.SIGSTOP)
	s.AwaitPlugin("no-secrets", plugin.Gone)
	p.Signal(syscall.SIGCONT)
	s.AwaitPlugin("no-secrets", plugin.Active)
	ran(t, s.Say("s", writeTo("secret.txt")), tool.CodeDenied)
	p.Leave(syscall.SIGINT)
	s.LeftNothing("no-secrets")
}

// The bucket of plugins is lost: the policy registers again, and is asked meanwhile.
func TestAPolicyOutlivesALostBucket(t *testing.T) {
	python := foreigntest.Need(t, "python3")
	s := foreigntest.Start(t)
	p := s.Run("no-secrets", "python", python, "policy_hook.py")
	s.AwaitPlugin("no-secrets", plugin.Active)
	js := s.Client.Bus.JetStream()
	if err := js.DeleteStream(t.Context(), "KV_plugins"); err != nil {
		t.Fatal(err)
	}
	natstest.Eventually(t, "the policy registers again", func() bool {
		ran(t, s.Say("s", writeTo("secret.txt")), tool.CodeDenied)
		at, err := s.Client.Journal.Bucket(journal.BucketPlugins).Revision(t.Context())
		return err == nil && at > 0
	})
	ran(t, s.Say("s", writeTo("secret.txt")), tool.CodeDenied)
	p.Leave(syscall.SIGINT)
	s.LeftNothing("no-secrets")
}

// Each core answers a heartbeat. When a lease is lost, each says so.
func TestAPluginGoesOnHoweverManyCoresSayThatItIsUnknown(t *testing.T) {
	python := foreigntest.Need(t, "python3")
	for script, name := range map[string]subject.Plugin{"policy_hook.py": "no-secrets", "tool.py": "disk"} {
		t.Run(script, func(t *testing.T) {
			s := foreigntest.StartWithLease(t, foreigntest.SoonOver)
			conn := s.Client.Bus.Conn()
			var heartbeats atomic.Int32
			if _, err := conn.Subscribe(subject.Registry(subject.Heartbeat, name), func(m *nats.Msg) {
				if heartbeats.Add(1) > 1 {
					return
				}
				for range 2 {
					reply := nats.NewMsg(m.Reply)
					reply.Header.Set(bus.ErrorHeader, string(bus.CodeNotFound))
					reply.Data = []byte(`{"code": "not_found", "message": "it has no lease", "retryable": false}`)
					if err := conn.PublishMsg(reply); err != nil {
						t.Error(err)
					}
				}
			}); err != nil {
				t.Fatal(err)
			}
			if err := conn.Flush(); err != nil {
				t.Fatal(err)
			}
			p := s.Run(subject.Identity(name), "python", python, script)
			natstest.Eventually(t, "it goes on", func() bool { return heartbeats.Load() > 3 })
			p.Leave(syscall.SIGINT)
			s.LeftNothing(name)
		})
	}
}

// What a hook cannot read is denied, and the hook goes on.
func TestAPolicyDeniesWhatItCannotRead(t *testing.T) {
	python := foreigntest.Need(t, "python3")
	s := foreigntest.Start(t)
	p := s.Run("no-secrets", "python", python, "policy_hook.py")
	s.AwaitPlugin("no-secrets", plugin.Active)
	caller, err := s.Client.Bus.NewCaller()
	if err != nil {
		t.Fatal(err)
	}
	for _, body := range []string{"", "{", `{"data": {"tool": "file_system:write_file", "args": {}}}`} {
		answer, err := caller.Request(natstest.Context(t), subject.Hook("before_act", "no-secrets"), "no-secrets", []byte(body))
		if err != nil || !strings.Contains(string(answer), `"verb": "deny"`) {
			t.Errorf("%q is answered with %s, %v", body, answer, err)
		}
	}
	ran(t, s.Say("s", writeTo("secret.txt")), tool.CodeDenied)
	p.Leave(syscall.SIGTERM)
}

func TestAHookOfPythonChangesTheArguments(t *testing.T) {
	python := foreigntest.Need(t, "python3")
	s := foreigntest.Start(t)
	p := s.Run("newline", "python", python, "hook.py")
	s.AwaitPlugin("newline", plugin.Active)
	ran(t, s.Say("s", writeTo("a.txt")), "")
	if b, err := os.ReadFile(filepath.Join(s.Workspace, "a.txt")); string(b) != "x\n" {
		t.Errorf("the file holds %q, %v", b, err)
	}
	p.Leave(syscall.SIGTERM)
	s.LeftNothing("newline")
}

func TestTheModelUsesAToolOfPython(t *testing.T) {
	python := foreigntest.Need(t, "python3")
	s := foreigntest.Start(t)
	p := s.Run("disk", "python", python, "tool.py")
	s.AwaitTool("disk:free", true)
	end := s.Say("s", `call disk:free {}`)
	ran(t, end, "")
	if !strings.Contains(end.Answer, "free_gb") {
		t.Errorf("the answer is %q", end.Answer)
	}
	ran(t, s.Say("s", `call disk:free {"path": "/nowhere/at/all"}`), tool.CodeFailed)
	ran(t, s.Say("s", `call disk:free {"path": 1}`), tool.CodeInvalidArgs)
	p.Leave(syscall.SIGINT)
	s.LeftNothing("disk")
	s.AwaitTool("disk:free", false)
}

func TestAListenerOfPythonIsAnswered(t *testing.T) {
	python := foreigntest.Need(t, "python3")
	s := foreigntest.Start(t)
	p := s.Run("python", "python", python, "listener.py")
	listens(t, p)
}

// listens has a listener say two lines, of which one fails.
func listens(t *testing.T, p *foreigntest.Process) {
	t.Helper()
	p.Say("from another language\n\n")
	p.Await("from another language")
	p.Say("fail bad_request\n")
	p.Await("failed: provider_failed")
	p.CloseInput()
	p.Wait()
	if n := strings.Count(p.Errs(), "acknowledged"); n != 2 {
		t.Errorf("%d inputs were acknowledged, want 2:\n%s", n, p.Errs())
	}
}

// node is the folder of the Node examples, with what they import.
func node(t *testing.T) (dir, program string) {
	t.Helper()
	program = foreigntest.Need(t, "node")
	dir = foreigntest.Copy(t, "node")
	foreigntest.NodeModules(t, dir)
	return dir, program
}

func TestTheModelUsesAToolOfNode(t *testing.T) {
	dir, node := node(t)
	s := foreigntest.Start(t)
	p := s.Run("words", dir, node, "tool.mjs")
	s.AwaitTool("words:slug", true)
	end := s.Say("s", `call words:slug {"text": "Größe, and More!"}`)
	ran(t, end, "")
	if !strings.Contains(end.Answer, "gro") || !strings.Contains(end.Answer, "-and-more") {
		t.Errorf("the answer is %q", end.Answer)
	}
	ran(t, s.Say("s", `call words:slug {"text": "…"}`), tool.CodeFailed)
	p.Leave(syscall.SIGINT)
	s.LeftNothing("words")
	s.AwaitTool("words:slug", false)
}

// A plugin can be ended while the bus is away.
func TestAToolOfNodeLeavesWithoutTheBus(t *testing.T) {
	dir, node := node(t)
	s := foreigntest.Start(t)
	p := s.Run("words", dir, node, "tool.mjs")
	s.AwaitTool("words:slug", true)
	s.Stop()
	p.Leave(syscall.SIGINT)
}

func TestAHookOfNodeAsksAPersonAndNotesWhatWasUsed(t *testing.T) {
	dir, node := node(t)
	s := foreigntest.Start(t)
	p := s.Run("careful", dir, node, "hook.mjs")
	s.AwaitPlugin("careful", plugin.Active)
	end := s.Say("s", writeTo("a.txt"))
	ran(t, end, "")
	if len(end.Notes) != 1 || end.Notes[0] != "used file_system:write_file" {
		t.Errorf("the notes are %q", end.Notes)
	}
	end = s.Say("s", `call file_system:write_file {"path": "a.txt", "content": "y", "mode": "overwrite"}`)
	if len(end.Asked) != 1 || !strings.Contains(end.Asked[0].SecurityWarning.Message, "What is in a.txt will be lost") {
		t.Errorf("a person was asked %+v", end.Asked)
	}
	ran(t, end, tool.CodeDenied)
	p.Leave(syscall.SIGTERM)
	s.LeftNothing("careful")
}

// A model call goes to the plugin through the provider service, as core sends it.
func TestAProviderOfNodeAnswers(t *testing.T) {
	dir, node := node(t)
	s := foreigntest.Start(t)
	p := s.Run("eliza", dir, node, "provider.mjs")
	s.AwaitPlugin("eliza", plugin.Active)
	ask := func(n int, messages ...provider.Message) executor.Answer {
		t.Helper()
		return s.Generate("eliza", fmt.Sprintf("t%d-p1", n), messages...)
	}
	user := provider.Message{Role: provider.RoleUser, Text: "I need a holiday."}
	if a := ask(1, user); a.Response == nil || a.Response.TextContent != "Why do you need a holiday?" {
		t.Errorf("the answer is %+v", a)
	}
	user.Text = `use time:now {"timezone": "UTC"}`
	a := ask(2, user)
	if a.Response == nil || len(a.Response.ToolCalls) != 1 || a.Response.ToolCalls[0].Tool != "time:now" {
		t.Fatalf("the answer is %+v", a)
	}
	call := a.Response.ToolCalls[0]
	a = ask(3, user, provider.Message{Role: provider.RoleAssistant, ToolCalls: a.Response.ToolCalls},
		provider.Message{Role: provider.RoleTool, CallID: call.ID, Tool: call.Tool, Text: "noon"})
	if a.Response == nil || a.Response.TextContent != "time:now says: noon" {
		t.Errorf("the answer is %+v", a)
	}
	user.Text = "use time:now {no JSON}"
	if a := ask(4, user); a.Error == nil || a.Error.Code != provider.ErrBadRequest {
		t.Errorf("the answer is %+v", a)
	}
	p.Leave(syscall.SIGINT)
	s.LeftNothing("eliza")
}

func TestAListenerOfNodeIsAnsweredAndLeaves(t *testing.T) {
	dir, node := node(t)
	s := foreigntest.Start(t)
	p := s.Run("lines", dir, node, "listener.mjs")
	s.AwaitPlugin("lines", plugin.Active)
	listens(t, p)
	s.LeftNothing("lines")
}

func TestAListenerOfShellIsHeardAndAnObserverSeesIt(t *testing.T) {
	bash := foreigntest.Need(t, "bash")
	s := foreigntest.Start(t)
	observer := s.Run("observer", "shell", bash, "observer.sh", "main")
	observer.Await("following")
	if err := s.Client.Bus.Conn().Flush(); err != nil {
		t.Fatal(err)
	}
	const text = `two "words" and a \ back\slash`
	p := s.Run("shell", "shell", bash, "listener.sh", text)
	p.Wait()
	if p.Out() != "1\n" {
		t.Errorf("the sequence is %q", p.Out())
	}
	observer.Await(`reflect.recorded main/shell {"sequence":1,`)
	observer.Await(`"answer":"echo: two \"words\" and a \\ back\\slash`)
	lines := s.Run("shell", "shell", bash, "listener.sh")
	lines.Say("one\nslow 10 ms\n")
	lines.CloseInput()
	lines.Wait()
	natstest.Eventually(t, "both inputs have ended", func() bool {
		return strings.Count(observer.Out(), "reflect.recorded") == 3
	})
	observer.Leave(syscall.SIGTERM)
}

// The whole system ends, bus and all, and comes back where it was.
func TestPluginsAreBackWhenTheBusIs(t *testing.T) {
	python := foreigntest.Need(t, "python3")
	dir, node := node(t)
	s := foreigntest.Start(t)
	programs := []*foreigntest.Process{s.Run("disk", "python", python, "tool.py"), s.Run("words", dir, node, "tool.mjs")}
	for i := range 2 {
		if i > 0 {
			s.Restart()
		}
		s.AwaitTool("disk:free", true)
		s.AwaitTool("words:slug", true)
		s.AwaitListens(subject.Tool("disk", "disk:free")) // its lease was there all the time
		s.AwaitListens(subject.Tool("words", "words:slug"))
		ran(t, s.Say("s", `call disk:free {}`), "")
		ran(t, s.Say("s", `call words:slug {"text": "A b"}`), "")
	}
	for _, p := range programs {
		p.Leave(syscall.SIGTERM)
	}
	s.LeftNothing("disk")
	s.LeftNothing("words")
}

// The port of the bus is taken after a restart: whatever was attached finds the new one.
func TestWhatWasAttachedFindsABusThatHasMoved(t *testing.T) {
	python := foreigntest.Need(t, "python3")
	dir, node := node(t)
	s := foreigntest.Start(t)
	programs := []*foreigntest.Process{
		s.Run("no-secrets", "python", python, "policy_hook.py"), s.Run("disk", "python", python, "tool.py"),
		s.Run("words", dir, node, "tool.mjs"), s.Run("observer", "shell", foreigntest.Need(t, "bash"), "observer.sh"),
	}
	s.AwaitPlugin("no-secrets", plugin.Active)
	s.AwaitTool("disk:free", true)
	s.AwaitTool("words:slug", true)
	s.RestartElsewhere()
	s.AwaitListens("hook.before_act.no-secrets")
	s.AwaitListens(subject.Tool("disk", "disk:free"))
	s.AwaitListens(subject.Tool("words", "words:slug"))
	s.AwaitListens("agent.main.s.test.seen")
	// One that was away for longer than its lease listens before it is registered again.
	s.AwaitPlugin("no-secrets", plugin.Active)
	s.AwaitTool("disk:free", true)
	s.AwaitTool("words:slug", true)
	ran(t, s.Say("s", writeTo("secret.txt")), tool.CodeDenied)
	ran(t, s.Say("s", `call disk:free {}`), "")
	ran(t, s.Say("s", `call words:slug {"text": "A b"}`), "")
	programs[3].Await("reflect.recorded main/s")
	for _, p := range programs {
		p.Leave(syscall.SIGTERM)
	}
}

// What cannot be registered says why, and ends.
func TestAPluginThatIsRefusedSaysWhy(t *testing.T) {
	python := foreigntest.Need(t, "python3")
	dir := foreigntest.Copy(t, "python")
	b, err := os.ReadFile(filepath.Join(dir, "tool.py"))
	if err != nil {
		t.Fatal(err)
	}
	bad := strings.Replace(string(b), `"risk": "low"`, `"risk": "lowest"`, 1)
	if err := os.WriteFile(filepath.Join(dir, "bad.py"), []byte(bad), 0o600); err != nil {
		t.Fatal(err)
	}
	p := foreigntest.Start(t).Run("disk", dir, python, "bad.py")
	p.Await("tools[0].risk")
	if err := p.Ended(); err == nil {
		t.Error("it ended as if all were well")
	}
}

func TestThePrograms(t *testing.T) {
	check := func(t *testing.T, dir, suffix, program string, args ...string) {
		t.Helper()
		files := foreigntest.Files(t, dir, suffix)
		if len(files) == 0 {
			t.Fatalf("no %s in %s", suffix, dir)
		}
		for _, f := range files {
			cmd := exec.CommandContext(t.Context(), program, append(args, f)...)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%s: %v\n%s", cmd, err, out)
			}
		}
	}
	t.Run("python", func(t *testing.T) {
		check(t, foreigntest.Copy(t, "python"), ".py", foreigntest.Need(t, "python3"), "-m", "py_compile")
	})
	t.Run("node", func(t *testing.T) { check(t, "node", ".mjs", foreigntest.Need(t, "node"), "--check") })
	t.Run("bash", func(t *testing.T) { check(t, "shell", ".sh", foreigntest.Need(t, "bash"), "-n") })
	t.Run("shellcheck", func(t *testing.T) {
		if program, err := exec.LookPath("shellcheck"); err == nil {
			check(t, "shell", ".sh", program, "-x", "-P", "SCRIPTDIR")
		}
	})
}

// The registry that a lock was made with is nobody else's business.
func TestTheLockNamesNoRegistry(t *testing.T) {
	b, err := os.ReadFile("node/package-lock.json")
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(b, []byte("://")) || bytes.Contains(b, []byte(`"resolved"`)) {
		t.Error("node/package-lock.json holds addresses; run `npm install --package-lock-only` in its folder, " +
			"whose .npmrc leaves them out")
	}
}
