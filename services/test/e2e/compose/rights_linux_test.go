package compose

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/natsserver"
	"skandha.dev/services/test/enginetest"
	"skandha.dev/services/test/natstest"
)

// withToken is what the bus was before it had rights.
const withToken = `
services:
  nats:
    command: [nats-server, -c, /old/nats.conf]
    environment: {SKANDHA_TOKEN: old}
    volumes: ["%s:/old/nats.conf:ro"]
`

// The input that waits in the log of the bus without rights, and its session.
const waiting, before = "what is 20+3?", "before"

// beforeRights starts the bus as it was before it had rights, with an input in its log, takes a backup of it, and
// has it prepared as make compose-up does.
func (p *project) beforeRights(t *testing.T) {
	t.Helper()
	data := t.TempDir()
	s := natstest.Start(t, natstest.WithConfig(func(c *natsserver.Config) { c.StoreDir = data }))
	b := natstest.Connect(t, s)
	natstest.EnsureStreams(t, b)
	if _, err := b.PublishCause(natstest.Context(t), subject.Ref{Agent: "main", Session: before}, subject.Input, "tester", "",
		fmt.Appendf(nil, `{"text":%q}`, waiting)); err != nil {
		t.Fatal(err)
	}
	b.Close()
	s.Shutdown()

	// The secrets exist before the container that does not use them yet.
	enginetest.Output(t, p.Command(t.Context(), filepath.Join(p.tree, secretsScript)))
	conf, over := filepath.Join(p.dir, "old.conf"), filepath.Join(p.dir, "old.yml")
	for name, text := range map[string]string{
		conf: "listen: \"0.0.0.0:4222\"\nhttp: \"127.0.0.1:8222\"\nauthorization {token: old}\n" +
			"jetstream {store_dir: \"/data/jetstream\", max_file_store: 64GB}\nmax_payload: 8MB\n",
		over: fmt.Sprintf(withToken, conf),
	} {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil { // the container's user reads it
			t.Fatal(err)
		}
	}
	now := p.Env
	p.Env = slices.Concat(now, []string{"COMPOSE_FILE=" + p.file() + ":" + over})
	p.run(t, "up", "--no-start", "--no-build", "nats")
	c := p.Docker(t, "ps", "--all", "--quiet", "--filter", p.filter())
	p.Docker(t, "cp", data+"/.", c+":/data/jetstream")
	p.run(t, "up", "--detach", "--no-build", "nats")
	p.Env = now

	if out, err := p.tool(t, "compose-backup.sh", "BACKUPS="+filepath.Join(p.dir, "before")); err != nil ||
		strings.Contains(out, "the keys of the bus") {
		t.Errorf("the backup of a bus without rights ends with %v:\n%s", err, out)
	}
	if out := enginetest.Output(t, p.script(t.Context(), secretsScript)); !strings.Contains(out, "stopping it, to give it rights") ||
		!strings.Contains(out, "now in the account of the system") {
		t.Errorf("%s says\n%s", secretsScript, out)
	}
}

const secretsScript = "deploy/dev/compose-secrets.sh"

// adopted finds the input that was stored without rights, and that it was answered. No tool may have been there yet.
func (p *project) adopted(t *testing.T) {
	enginetest.Await(t, patience, func(ctx context.Context) error {
		cmd := p.HostCommand(ctx, p.skandha, "sessions", "show", before)
		cmd.Env = append(cmd.Env, p.operator()...)
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), waiting) || !strings.Contains(string(out), "1 turn, 0 failed") {
			return fmt.Errorf("the session is (%w)\n%s", err, out)
		}
		return nil
	})
}

// strangerProgram is a listener with Python's standard library, on the host. It prints what becomes of acts that it
// was not invited for; then, after a line of its input, the answer to an input, and the sessions of which it has heard;
// and in the end why its connection ends.
const strangerProgram = `
import json, sys
import listener
from skandha import Bus

inbox = listener.INBOX
bus = Bus(inbox)
bus.socket.settimeout(60)

def ask(subject, body):
    bus.publish(subject, body, reply=inbox)
    for _, _, headers, answer in bus:
        return headers["Status"] or json.loads(answer)

refused = {
    "an input as another listener": ("agent.main.python.sense.input.mallory", {"text": "x", "id": "1"}),
    "an input in another session": ("agent.main.other.sense.input.python", {"text": "x", "id": "2"}),
    "an approval": ("agent.main.python.person.confirmation.mallory", {"approved": True}),
    "a result of a tool": ("agent.main.python.act.completed.mallory", {}),
    "the status": ("service.core.status", {}),
    "an invitation": ("service.admin.identities", {"op": "invite", "charter": {"name": "other"}}),
    "the log": ("$JS.API.STREAM.INFO.SESSIONS", {}),
    "a message of the log": ("$JS.API.DIRECT.GET.SESSIONS", {"seq": 1}),
    "all streams": ("$JS.API.STREAM.NAMES", {}),
    "deleting the log": ("$JS.API.STREAM.DELETE.SESSIONS", {}),
    "the server": ("$SYS.REQ.SERVER.PING", {}),
}
answers = {what: ask(*act) for what, act in refused.items()}

bus = Bus(inbox, "agent.>", "answer.>", "delta.>", "tool.>", "service.>", "hook.>")
bus.socket.settimeout(60)
bus.publish(inbox, {})
next(iter(bus)) # it is subscribed
print(json.dumps(answers), flush=True)

sys.stdin.readline()
heard = set()
sequence = None
bus.publish("agent.main.python.sense.input.python", {"text": "what is 2+2?", "id": "3"}, reply=inbox)
for subject, _, _, body in bus:
    if subject == inbox:
        sequence = json.loads(body)["seq"]
        continue
    heard.add(subject.split(".")[2 if subject.startswith("agent.") else 3])
    event = json.loads(body)
    if event.get("type") == "skandha.reflect.recorded.v1" and event["data"]["sequence"] == sequence:
        print(json.dumps({"answer": event["data"]["answer"], "heard": sorted(heard)}), flush=True)
        break
try:
    for _ in bus:
        pass
except OSError as e:
    print(json.dumps(str(e)), flush=True)
try:
    for _ in Bus(inbox):
        pass
except OSError as e:
    print(json.dumps(str(e)), flush=True)
`

// stranger invites a listener that runs outside of the containers, and revokes it.
func (p *project) stranger(t *testing.T) {
	enginetest.Need(t, "python3")
	invited := p.run(t, "run", "--rm", "-T", "cli", "plugins", "invite", "python", "--listener", "python", "--session", "python")
	url := regexp.MustCompile(`export SKANDHA_NATS='(nats://ey[^@']+@127\.0\.0\.1:\d+)'`).FindStringSubmatch(invited)
	if url == nil || !strings.HasSuffix(url[1], "@"+strings.TrimPrefix(p.nats, "nats://")) {
		t.Fatalf("the invitation is for another address than %s:\n%s", p.nats, invited)
	}
	cmd := p.HostCommand(t.Context(), "python3", "-c", strangerProgram)
	cmd.Env = append(cmd.Env, "SKANDHA_NATS="+url[1], "PYTHONDONTWRITEBYTECODE=1",
		"PYTHONPATH="+filepath.Join(root, "services/listener/examples/python"))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	next := func(into any) {
		t.Helper()
		if !lines.Scan() {
			t.Fatalf("the listener has ended: %v", cmd.Wait())
		}
		if err := json.Unmarshal(lines.Bytes(), into); err != nil {
			t.Fatalf("%q: %v", lines.Text(), err)
		}
	}

	var acts map[string]any
	next(&acts)
	if len(acts) < 11 {
		t.Errorf("acts are %v", acts)
	}
	for what, answer := range acts {
		// As far as it can tell, there is no responder, and no JetStream in its account.
		if answer != "503" && !strings.Contains(fmt.Sprint(answer), "code:503 description:JetStream not enabled for account") {
			t.Errorf("%s: answered with %v", what, answer)
		}
	}
	if answer := p.ask(t, "what is 8+8?", "--session", "private"); !strings.Contains(answer, "16") {
		t.Errorf("8+8 is %q", answer)
	}
	if _, err := io.WriteString(in, "\n"); err != nil {
		t.Fatal(err)
	}
	var own struct {
		Answer string
		Heard  []string
	}
	next(&own)
	if !strings.Contains(own.Answer, "4") || strings.Join(own.Heard, " ") != "python" {
		t.Errorf("the listener is answered %q, and hears of the sessions %v", own.Answer, own.Heard)
	}

	p.operate(t, "plugins", "revoke", "python")
	revoked := time.Now()
	var why, again string
	next(&why)
	t.Logf("the connection is closed %v after the revocation is confirmed: %s", time.Since(revoked).Round(time.Millisecond), why)
	if next(&again); !strings.Contains(again, "Authorization Violation") {
		t.Errorf("the listener connects again, and ends with %q", again)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("the listener: %v", err)
	}
	if all := p.operate(t, "plugins", "identities"); !regexp.MustCompile(`(?m)^python +revoked `).MatchString(all) {
		t.Errorf("identities are\n%s", all)
	}
}

// operate runs the command on the host, as the people who run the system.
func (p *project) operate(t *testing.T, args ...string) string {
	t.Helper()
	cmd := p.HostCommand(t.Context(), p.skandha, args...)
	cmd.Env = append(cmd.Env, p.operator()...)
	return enginetest.Output(t, cmd)
}
