package plugintest

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/plugin"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/test/natstest"
)

// build builds the examples, once for each test: the go command remembers.
func build(t *testing.T, name string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), name)
	if out, err := exec.Command("go", "build", "-o", path,
		"skandha.dev/pkg/plugin/examples/"+name).CombinedOutput(); err != nil {
		t.Fatalf("building the example %s: %v\n%s", name, err, out)
	}
	return path
}

// program is an example that runs as a process.
type program struct {
	t   *testing.T
	cmd *exec.Cmd
	log *lines
}

// run starts an example on a bus until the test ends.
func run(t *testing.T, name, url string) *program {
	t.Helper()
	p := &program{t: t, log: &lines{}, cmd: exec.Command(build(t, name))}
	p.cmd.Env = append(os.Environ(), "SKANDHA_NATS="+url)
	p.cmd.Stderr = p.log
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if p.cmd.ProcessState == nil {
			_ = p.cmd.Process.Kill()
			_ = p.cmd.Wait()
		}
		if t.Failed() {
			t.Logf("%s said:\n%s", name, p.log)
		}
	})
	natstest.Eventually(t, name+" is active", func() bool { return p.log.count("plugin is active") == 1 })
	return p
}

// stop ends the program as a supervisor does, and wants it to end well.
func (p *program) stop() {
	p.t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		p.t.Fatal(err)
	}
	if err := p.cmd.Wait(); err != nil {
		p.t.Errorf("%v\n%s", err, p.log)
	}
}

// onTCP is a rig that processes can join.
func onTCP(t *testing.T) (*rig, string) {
	t.Helper()
	r, server := newRemoteRig(t)
	return r, server.URL()
}

func TestTheExampleOfAPolicy(t *testing.T) {
	r, url := onTCP(t)
	p := run(t, "policy", url)
	for i, c := range []struct {
		tool, args string
		want       hook.Verb
	}{
		{"clock:now", `{}`, hook.Continue},
		{"file_system:write_file", `{"path":"notes.txt"}`, hook.Confirm},
		{"file_system:write_file", `{"path":"a/../etc/passwd"}`, hook.DenyVerb},
	} {
		data, err := json.Marshal(hook.ActData{Call: "t1-p1-c0", Tool: c.tool, Args: json.RawMessage(c.args)})
		if err != nil {
			t.Fatal(err)
		}
		var reply hook.Reply
		r.request(subject.Hook("before_act", "policy"), "policy", hook.Envelope{
			InvocationID: "i" + string(rune('0'+i)), Point: hook.BeforeAct, Plugin: "policy", Agent: "demo", Session: "s1",
			Deadline: time.Now().Add(time.Minute), Data: data,
		}, &reply)
		if reply.Verb != c.want {
			t.Errorf("%s %s: %+v", c.tool, c.args, reply)
		}
	}
	p.stop()
	if r.desk.leases("policy") != 0 {
		t.Error("it is still registered")
	}
}

func (r *rig) request(subj, responder string, question, answer any) {
	r.Helper()
	body, err := json.Marshal(question)
	if err != nil {
		r.Fatal(err)
	}
	got, err := r.ask.Request(natstest.Context(r), subj, responder, body)
	if err != nil {
		r.Fatal(err)
	}
	if err := json.Unmarshal(got, answer); err != nil {
		r.Fatal(err)
	}
}

func TestTheExampleOfATool(t *testing.T) {
	r, url := onTCP(t)
	p := run(t, "weather", url)
	ask := func(call, args string) (result tool.Result) {
		r.request(subject.Tool("weather", "weather:forecast"), "weather", tool.Call{
			Call: call, Attempt: "a", Agent: "demo", Session: "s1", Turn: "t1", Tool: "weather:forecast",
			Args:     json.RawMessage(args),
			Deadline: time.Now().Add(time.Minute),
		}, &result)
		return result
	}
	var days []map[string]any
	if res := ask("t1-p1-c0", `{"place":"Oslo","days":3,"unit":"celsius"}`); json.Unmarshal(res.Data, &days) != nil ||
		len(days) != 3 {
		t.Errorf("%+v", res)
	}
	if res := ask("t1-p1-c1", `{"place":"Atlantis","days":1,"unit":"celsius"}`); res.Error == nil ||
		res.Error.Code != tool.CodeFailed {
		t.Errorf("%+v", res)
	}
	p.stop()
}

func TestTheExampleOfAProvider(t *testing.T) {
	r, url := onTCP(t)
	p := run(t, "echo-provider", url)
	var reply provider.Reply
	r.request(subject.Generate("echo"), "echo", provider.Call{
		Plan: "t1-p1", Attempt: "a", Agent: "demo", Session: "s1", Deadline: time.Now().Add(time.Minute),
		Request: provider.Request{Messages: []json.RawMessage{json.RawMessage(`{"role":"user","text":"hello"}`)}},
	}, &reply)
	if reply.Response == nil || reply.Response.TextContent != "You said: hello" {
		t.Errorf("%+v", reply)
	}
	p.stop()
}

// The program exits with status 1, and reports why, when the registry rejects it.
func TestAProgramThatIsRefusedSaysWhy(t *testing.T) {
	r, url := onTCP(t)
	r.desk.with(refuse)
	cmd := exec.Command(build(t, "policy"))
	cmd.Env = append(os.Environ(), "SKANDHA_NATS="+url)
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() != 1 || !strings.Contains(string(out), "plugin policy: rejected by the registry: ") ||
		!strings.Contains(string(out), "name is taken by a king") {
		t.Errorf("%v: %s", err, out)
	}
}

// The program in the package's documentation is a program.
func TestTheExampleInTheDocumentationBuilds(t *testing.T) {
	doc, err := os.ReadFile("../../../pkg/plugin/doc.go")
	if err != nil {
		t.Fatal(err)
	}
	var code strings.Builder
	for line := range strings.Lines(string(doc)) {
		if text, is := strings.CutPrefix(line, "//\t"); is && (code.Len() > 0 || strings.HasPrefix(text, "package main")) {
			code.WriteString(text)
		} else if code.Len() > 0 && line != "//\n" {
			break
		}
	}
	source := filepath.Join(t.TempDir(), "main.go")
	if err := os.WriteFile(source, []byte(code.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("go", "vet", source).CombinedOutput(); err != nil || code.Len() < 500 {
		t.Errorf("%v: %s\n%s", err, out, code.String())
	}
}

func refuse(subject.PluginVerb, subject.Plugin, []byte) (*plugin.Lease, error) {
	return nil, bus.Errorf(bus.CodeInvalidArgument, "name is taken by a king")
}
