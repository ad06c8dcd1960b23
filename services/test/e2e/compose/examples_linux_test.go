package compose

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"skandha.dev/services/test/enginetest"
)

// policyProgram prints what becomes of acts for which a hook was not invited.
const policyProgram = `
import json
from skandha import Bus

bus = Bus("_INBOX.no-secrets")
bus.socket.settimeout(60)

def ask(subject):
    bus.publish(subject, {}, reply="_INBOX.no-secrets")
    for _, _, headers, answer in bus:
        return headers["Status"] or answer.decode()

print(json.dumps({subject: ask(subject) for subject in (
    "agent.main.python.sense.input.no-secrets", "agent.main.python.person.confirmation.no-secrets",
    "plugin.register.other", "service.core.status", "service.admin.identities", "$JS.API.STREAM.NAMES",
)}))
`

// examples invites what the profile of that name adds, as make compose-up does, with each version of compose. The last
// one is that of the tests that follow, for which the policy stays.
func (p *project) examples(t *testing.T) {
	first := p.compose
	defer func() { p.compose = first }()
	all := versions(t, p.Env)
	for i, compose := range slices.Backward(all) {
		p.compose = compose
		ok := t.Run("version "+p.run(t, "version", "--short"), func(t *testing.T) {
			p.forgotten(t)
			p.invited(t)
			p.listens(t)
			if i > 0 {
				p.withdrawn(t)
			}
		})
		if !ok {
			return
		}
	}
	if len(all) == 1 {
		p.withdrawn(t)
		p.invited(t)
	}
	if out := enginetest.Output(t, p.script(t.Context(), healthy)); !regexp.MustCompile(`example-policy\S* healthy`).MatchString(out) {
		t.Errorf("%s says %s", healthy, out)
	}
}

// env is the file with the settings of the system.
func (p *project) env() string { return filepath.Join(p.tree, ".env") }

// listener is the listener of the examples, in a container.
func (p *project) listener(t *testing.T) *exec.Cmd {
	t.Helper()
	return p.Command(t.Context(), p.compose[0], append(slices.Clone(p.compose[1:]), "run", "--rm", "-T", "example-listener")...)
}

// forgotten starts a listener that nobody has invited.
func (p *project) forgotten(t *testing.T) {
	t.Helper()
	if err := os.WriteFile(p.env(), []byte("COMPOSE_PROFILES='examples'\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := p.listener(t)
	cmd.Stdin = strings.NewReader("what is 2+2?\n")
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "to get new ones: skandha plugins invite") {
		t.Errorf("without an invitation the listener ends with %v:\n%s", err, out)
	}
}

// invited invites the examples, and has the policy judge.
func (p *project) invited(t *testing.T) {
	t.Helper()
	out, err := p.tool(t, "compose-invite.sh")
	if err != nil || !strings.Contains(out, "invited no-secrets;") || !strings.Contains(out, "invited python;") {
		t.Fatalf("the invitation ends with %v:\n%s", err, out)
	}
	if out, err := p.tool(t, "compose-invite.sh"); err != nil || out != "" {
		t.Errorf("another time it ends with %v:\n%s", err, out)
	}
	if info, err := os.Stat(p.env()); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("others can read the credentials: %v, %v", info, err)
	}
	p.policy(t).hardened(t)
	p.judged(t, true)

	var answers map[string]string
	if err := json.Unmarshal([]byte(p.Docker(t, "exec", p.policy(t).ID, "python3", "-c", policyProgram)), &answers); err != nil {
		t.Fatal(err)
	}
	for what, answer := range answers {
		// As far as it can tell, there is no responder, and no JetStream in its account.
		if answer != "503" && !strings.Contains(answer, `"code":503`) {
			t.Errorf("%s of the policy is answered with %s", what, answer)
		}
	}
}

// judged awaits that files with "secret" in their name are denied, or written.
func (p *project) judged(t *testing.T, denied bool) {
	t.Helper()
	enginetest.Await(t, patience, func(ctx context.Context) error {
		cmd := p.HostCommand(ctx, p.skandha, "ask", "--yes", "write hello to secret.txt") // it fails if the call is denied
		cmd.Env = append(append(cmd.Env, p.operator()...), "SKANDHA_DATA="+p.dir)
		out, err := cmd.CombinedOutput()
		if strings.Contains(string(out), "no file may have 'secret' in its name") != denied || err == nil == denied {
			return fmt.Errorf("the agent says (%w) %s", err, out)
		}
		return nil
	})
}

// listens has the listener be answered, and then revokes it.
func (p *project) listens(t *testing.T) {
	t.Helper()
	cmd := p.listener(t)
	var errs strings.Builder
	cmd.Stderr = &errs
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err == nil {
		_, err = fmt.Fprintln(in, "what is 2+2?")
	}
	if err != nil {
		t.Fatal(err)
	}
	answers := bufio.NewScanner(out)
	if !answers.Scan() || !strings.Contains(answers.Text(), "4") {
		t.Errorf("2+2 is %q", answers.Text())
	}
	p.operate(t, "plugins", "revoke", "python")
	_, _ = fmt.Fprintln(in, "what is 2+3?")
	_ = in.Close()
	for answers.Scan() {
		if answers.Text() != "" {
			t.Errorf("the revoked listener is answered %q", answers.Text())
		}
	}
	if err := cmd.Wait(); err == nil || !strings.Contains(errs.String(), "the bus refuses the credentials") {
		t.Errorf("the revoked listener ends with %v:\n%s", err, &errs)
	}
}

// withdrawn revokes the policy and removes it.
func (p *project) withdrawn(t *testing.T) {
	t.Helper()
	id := p.policy(t).ID
	p.operate(t, "plugins", "revoke", "no-secrets")
	revoked := time.Now()
	enginetest.Await(t, patience, func(ctx context.Context) error {
		out, err := p.Command(ctx, "docker", "logs", id).CombinedOutput()
		if err != nil || !strings.Contains(string(out), "the bus refuses the credentials") {
			return fmt.Errorf("the log of the policy is (%w)\n%s", err, out)
		}
		return nil
	})
	t.Logf("the policy is gone %v after the revocation is confirmed", time.Since(revoked).Round(time.Millisecond))
	p.judged(t, false)
	for _, name := range []string{"no-secrets", "python"} {
		if all := p.operate(t, "plugins", "identities"); !regexp.MustCompile(`(?m)^` + name + ` +revoked `).MatchString(all) {
			t.Errorf("identities are\n%s", all)
		}
	}
	p.run(t, "rm", "--stop", "--force", "example-policy")
	if err := os.WriteFile(p.env(), []byte("COMPOSE_PROFILES='examples'\n"), 0o600); err != nil {
		t.Fatal(err)
	}
}

// policy is the container of the policy.
func (p *project) policy(t *testing.T) container {
	t.Helper()
	for _, c := range p.containers(t) {
		if c.service() == "example-policy" {
			return c
		}
	}
	t.Fatal("the policy has no container")
	return container{}
}
