package compose

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"skandha.dev/services/internal/signature"
	"skandha.dev/services/internal/trust"
	"skandha.dev/services/test/enginetest"
	"skandha.dev/services/test/natstest"
)

// How long a whole step may take on a slow machine that does other things too.
const patience = 3 * time.Minute

// healthy is the script that waits for a system.
const healthy = "deploy/dev/compose-healthy.sh"

// project is a system of docker-compose.yml that is up.
type project struct {
	*engine
	name    string
	secrets string // directory of the bus's keys
	nats    string // URL on the host
	hooks   string // likewise, of the listener's webhooks
	page    string // likewise, of the UI bridge
	secret  []byte // of the webhook
	uiToken string // of the page's owner
	skandha string // the command
	dir     string // of the test
}

func TestSystemOfContainers(t *testing.T) {
	p := up(t)

	t.Run("every container is healthy and hardened", func(t *testing.T) {
		if out := enginetest.Output(t, p.script(t.Context(), healthy)); !strings.HasPrefix(out, "all are healthy") {
			t.Errorf("%s says %s", healthy, out)
		}
		p.awaitHealthy(t,
			map[string]int{
				"nats": 1, "redis": 1, "core": 1, "provider": 1, "toolrunner": 2, "sandbox": 1, "engine": 1,
				"listener": 1, "uibridge": 1,
			})
		for _, c := range p.containers(t) {
			c.hardened(t)
		}
	})
	t.Run("a person on the host is answered", func(t *testing.T) {
		enginetest.Await(t, patience, func(ctx context.Context) error { return p.runners(ctx, 2) })
		if answer := p.ask(t, "what is 2+2?"); !strings.Contains(answer, "4") {
			t.Errorf("2+2 is %q, want 4 in it", answer)
		}
	})
	t.Run("without credentials nobody is", func(t *testing.T) {
		cmd := p.HostCommand(t.Context(), p.skandha, "ask", "--nats", p.nats, "--token", "wrong", "--timeout", "10s",
			"what is 2+2?")
		if out, err := cmd.CombinedOutput(); err == nil {
			t.Errorf("a wrong token was let in: %s", out)
		}
	})
	t.Run("what was stored before the bus had rights is still there", p.adopted)
	t.Run("a stranger's listener may do what it was invited for, until it is revoked", p.stranger)
	t.Run("the examples may do what they were invited for, until they are revoked", p.examples)
	t.Run("a signed call from the host is taken, and a forged one is not", func(t *testing.T) {
		if answer, err := p.call(t, p.secret); err != nil || !strings.Contains(answer, `"sequence":`) {
			t.Errorf("answered %q, %v", answer, err)
		}
		if answer, err := p.call(t, []byte("somebody else's secret")); err == nil {
			t.Errorf("a forged call is answered %q", answer)
		}
	})
	t.Run("a one-time link opens the page, once, and nobody else is let in", func(t *testing.T) {
		if body, err := p.get(t, ""); err != nil || !strings.Contains(body, "<html") {
			t.Errorf("the page is %q, %v", body, err)
		}
		if body, err := p.get(t, "v1/auth/me"); err == nil {
			t.Errorf("nobody is let in: %s", body)
		}
		if body, err := p.get(t, "v1/auth/me", "Authorization: Bearer "+p.uiToken); err != nil ||
			!strings.Contains(body, `"owner"`) {
			t.Errorf("the owner is answered %q, %v", body, err)
		}
		page, code, ok := strings.Cut(p.run(t, "run", "--rm", "-T", "cli", "ui"), "#code=")
		if !ok || page != p.page {
			t.Fatalf("the link is for %q, want %q", page, p.page)
		}
		if body, err := p.logIn(t, strings.Fields(code)[0]); err != nil || !strings.Contains(body, `"owner"`) {
			t.Errorf("the code is answered %q, %v", body, err)
		}
		if body, err := p.logIn(t, strings.Fields(code)[0]); err == nil {
			t.Errorf("the code opens twice: %s", body)
		}
	})
	t.Run("tool runners share the workspace", func(t *testing.T) {
		p.ask(t, "write swordfish to hello.txt", "--yes")
		for range 4 { // whichever runner it is
			if answer := p.ask(t, "what is in hello.txt?", "--yes"); !strings.Contains(answer, "swordfish") {
				t.Errorf("hello.txt is %q, want swordfish in it", answer)
			}
		}
	})
	t.Run("Python runs in a separate container, and its files stay", func(t *testing.T) {
		if answer := p.ask(t,
			"compute the first 20 primes with Python and save them to primes.txt"); !strings.Contains(answer, "67 71") {
			t.Fatalf("the primes are %q", answer)
		}
		if left := p.sandboxes(t); len(left) == 0 {
			t.Error("no container holds the session's files")
		}
		// The same session, by its name, finds the file; another does not.
		p.ask(t, "run python: open('primes.txt', 'w').write('mine')", "--session", "one")
		if answer := p.ask(t, "what is in primes.txt?", "--session", "one"); !strings.Contains(answer, "mine") {
			t.Errorf("the session's own file is %q", answer)
		}
		if answer := p.ask(t, "what is in primes.txt?", "--session", "two"); strings.Contains(answer, "mine") {
			t.Errorf("another session reads %q", answer)
		}
		if answer := p.ask(t,
			"run python: __import__('socket').create_connection(('nats', 4222), 2)"); !strings.Contains(answer,
			"name resolution") {
			t.Errorf("the code reaches the bus: %q", answer)
		}
	})
	t.Run("a core that is killed comes back", func(t *testing.T) {
		if p.PID == 0 {
			t.Log("the engine is not ours, so its processes are not ours to kill")
			return
		}
		all := p.containers(t)
		core := all[slices.IndexFunc(all, func(c container) bool { return c.service() == "core" })]
		if err := syscall.Kill(core.State.Pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		enginetest.Await(t, patience, func(context.Context) error {
			if n := p.inspect(t, core.ID)[0].RestartCount; n != core.RestartCount+1 {
				return fmt.Errorf("restarted %d times, want %d", n, core.RestartCount+1)
			}
			return nil
		})
		enginetest.Await(t, patience, func(ctx context.Context) error { return p.runners(ctx, 2) })
		if answer := p.ask(t, "what is 3+4?"); !strings.Contains(answer, "7") {
			t.Errorf("3+4 is %q, want 7 in it", answer)
		}
	})
	t.Run("an upgrade takes a backup, stops at what does not run, and goes back", p.upgrade)
	t.Run("a backup is restored", p.restore)
	t.Run("a container that has stopped is named", func(t *testing.T) {
		p.run(t, "stop", "listener")
		cmd := p.script(t.Context(), healthy)
		cmd.Env = append(cmd.Env, "PATIENCE=0")
		out, err := cmd.CombinedOutput()
		if err == nil || !regexp.MustCompile(`listener\S* exited\n`).Match(out) || bytes.Contains(out, []byte("redis")) {
			t.Errorf("%s says (%v)\n%s", healthy, err, out)
		}
	})
	t.Run("down leaves nothing behind", func(t *testing.T) {
		enginetest.Output(t, p.Command(t.Context(), "make", "-C", p.tree, "compose-down", "VOLUMES=yes"))
		if left := p.sandboxes(t); len(left) > 0 {
			t.Errorf("containers of sandboxes: %v", left)
		}
		for _, what := range [][]string{{"ps", "--all"}, {"volume", "ls"}, {"network", "ls"}} {
			if left := p.Docker(t, append(what, "--quiet", "--filter", p.filter())...); left != "" {
				t.Errorf("docker %s: %s", strings.Join(what, " "), left)
			}
		}
	})
}

// up starts the system and takes it down at the end.
func up(t *testing.T) *project {
	t.Helper()
	e := findEngine(t)
	id := strings.ToLower(rand.Text()[:8])
	prefix := "skandha-e2e-" + id
	p := &project{
		engine: e, name: prefix, secret: []byte(rand.Text()), uiToken: "u" + rand.Text(), dir: t.TempDir(),
	}
	p.secrets = filepath.Join(p.dir, "secrets")
	image := enginetest.SandboxImage(t, e.Engine)
	p.skandha = e.images(t, prefix, "test", image)
	e.tree = filepath.Join(p.dir, "tree") // with an .env that is not the user's
	port := freePort(t)
	hooks, ui := freePort(t), freePort(t)
	p.nats, p.hooks, p.page = "nats://127.0.0.1:"+port, "http://127.0.0.1:"+hooks+"/hooks/", "http://127.0.0.1:"+ui+"/"
	listeners := filepath.Join(t.TempDir(), "listener.yaml")
	if err := os.WriteFile(listeners, []byte(listenerConfig), 0o644); err != nil { // the container's user reads it
		t.Fatal(err)
	}
	err := os.CopyFS(filepath.Join(e.tree, "deploy"), os.DirFS(filepath.Join(root, "deploy")))
	for _, name := range []string{"docker-compose.yml", "Makefile"} {
		var text []byte
		if err == nil {
			text, err = os.ReadFile(filepath.Join(root, name))
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(e.tree, name), text, 0o600)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	e.Env = slices.DeleteFunc(e.Env, func(s string) bool { // these are in the .env
		return strings.HasPrefix(s, "COMPOSE_PROFILES=") || strings.HasPrefix(s, "SKANDHA_POLICY_TOKEN=") ||
			strings.HasPrefix(s, "SKANDHA_EXAMPLE_TOKEN=")
	})
	e.Env = append(e.Env,
		"COMPOSE_PROJECT_NAME="+p.name, "COMPOSE_FILE="+p.file(), "SKANDHA_NATS_PORT="+port,
		"SKANDHA_SECRETS="+p.secrets, "SKANDHA_REDIS_PASSWORD=r"+rand.Text(),
		"SKANDHA_IMAGES="+prefix, "SKANDHA_VERSION=test",
		"SKANDHA_PROVIDER=offline", "SKANDHA_MODEL=", "SKANDHA_BASE_URL=", "SKANDHA_HTTP_ALLOW=", "SKANDHA_HTTP_LOCAL=",
		"SKANDHA_WEB_SEARCH=",
		"SKANDHA_WEB_SEARCH_URL=", "SKANDHA_WEB_SEARCH_KEY=", "SKANDHA_WEB_FETCH=", "SKANDHA_WEB_FETCH_LOCAL=", "SKANDHA_CORE_CONFIG=",
		"SKANDHA_LISTENER_PORT="+hooks, "SKANDHA_LISTENER_CONFIG="+listeners, "SKANDHA_WEBSOCKET_TOKEN=",
		"SKANDHA_WEBHOOK_SECRET=whsec_"+base64.StdEncoding.EncodeToString(p.secret),
		"SKANDHA_UI_PORT="+ui, "SKANDHA_UI_TOKEN="+p.uiToken, "SKANDHA_UI_URL=", "SKANDHA_UI_CONFIG=",
		"SKANDHA_SANDBOX_IMAGE="+image, "SKANDHA_SANDBOX_OWNER="+p.name, "SKANDHA_SANDBOX_RUNTIME=", "SKANDHA_SANDBOX_INDEX=",
		"SKANDHA_DOCKER_SOCKET="+e.socket(),
		"OPENAI_API_KEY=", "OPENAI_BASE_URL=", "OPENAI_MODEL=")
	t.Cleanup(func() {
		// The test's context is over, and its own `down` may not have been reached.
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if t.Failed() {
			out, _ := p.Command(ctx, p.compose[0],
				append(p.compose[1:], "logs", "--no-color", "--tail", "40")...).CombinedOutput()
			t.Logf("the containers' logs end:\n%s", out)
		}
		if out, err := p.Command(ctx, p.compose[0],
			append(p.compose[1:], "down", "--volumes", "--timeout", "5")...).CombinedOutput(); err != nil {
			t.Errorf("compose down: %v\n%s", err, out)
		}
	})
	p.beforeRights(t)
	p.run(t, "up", "--detach", "--no-build", "--scale", "toolrunner=2")
	return p
}

// file is the compose file.
func (p *project) file() string { return filepath.Join(p.tree, "docker-compose.yml") }

func freePort(t *testing.T) string {
	t.Helper()
	return strconv.Itoa(natstest.FreePort(t))
}

// run calls docker-compose, which has to succeed, and returns what it prints.
func (p *project) run(t *testing.T, args ...string) string {
	t.Helper()
	return enginetest.Output(t, p.Command(t.Context(), p.compose[0], append(slices.Clone(p.compose[1:]), args...)...))
}

// ask asks as a person on the host would, and returns the answer.
func (p *project) ask(t *testing.T, text string, flags ...string) string {
	t.Helper()
	cmd := p.HostCommand(t.Context(), p.skandha,
		append(append([]string{"ask", "--timeout", patience.String()}, flags...), text)...)
	cmd.Env = append(append(cmd.Env, p.operator()...), "SKANDHA_DATA="+t.TempDir())
	return enginetest.Output(t, cmd)
}

// operator is the environment of the people who run the system, on the host.
func (p *project) operator() []string {
	return []string{"SKANDHA_NATS=" + p.nats, "SKANDHA_CREDS=" + filepath.Join(p.secrets, trust.CredsFile)}
}

const listenerConfig = `
listeners:
  http: {listen: "0.0.0.0:8090"}
  webhook: {calls: {session: calls, secrets: ["env:SKANDHA_WEBHOOK_SECRET"]}}
`

// call calls the webhook from the host, signed with the key.
func (p *project) call(t *testing.T, key []byte) (string, error) {
	t.Helper()
	id, now, body := rand.Text(), time.Now(), `{"text": "what is 1+1?"}`
	out, err := p.HostCommand(t.Context(), "busybox", "wget", "-q", "-O", "-", "--header",
		"Content-Type: application/json",
		"--header", signature.HeaderID+": "+id, "--header", signature.HeaderTimestamp+": "+strconv.FormatInt(now.Unix(), 10),
		"--header", signature.HeaderSignature+": "+signature.Sign(key, id, now, []byte(body)),
		"--post-data", body, p.hooks+"calls").Output()
	return string(out), err
}

// get asks the UI bridge from the host.
func (p *project) get(t *testing.T, path string, headers ...string) (string, error) {
	t.Helper()
	args := []string{"wget", "-q", "-O", "-"}
	for _, h := range headers {
		args = append(args, "--header", h)
	}
	out, err := p.HostCommand(t.Context(), "busybox", append(args, p.page+path)...).Output()
	return string(out), err
}

// logIn shows a one-time code, as the page does.
func (p *project) logIn(t *testing.T, code string) (string, error) {
	t.Helper()
	out, err := p.HostCommand(t.Context(), "busybox", "wget", "-q", "-O", "-", "--header",
		"Content-Type: application/json",
		"--header", "Origin: "+strings.TrimSuffix(p.page, "/"), "--post-data", `{"code": "`+code+`"}`,
		p.page+"v1/auth/code").Output()
	return string(out), err
}

// runners says whether core knows n tool runners.
func (p *project) runners(ctx context.Context, n int) error {
	cmd := p.HostCommand(ctx, p.skandha, "status", "--json")
	cmd.Env = append(cmd.Env, p.operator()...)
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			return fmt.Errorf("skandha status: %w: %s", err, exit.Stderr)
		}
		return err
	}
	if got := bytes.Count(out, []byte(strconv.Quote("toolrunner"))); got != n {
		return fmt.Errorf("core knows %d tool runners, want %d:\n%s", got, n, out)
	}
	return nil
}

func (p *project) filter() string { return "label=com.docker.compose.project=" + p.name }

// container is what matters of docker inspect.
type container struct {
	ID           string `json:"Id"`
	Name         string
	RestartCount int
	State        struct {
		Pid    int
		Status string
		Health *struct{ Status string }
	}
	Config struct {
		User   string
		Labels map[string]string
	}
	HostConfig struct {
		Binds          []string
		CapAdd         []string
		CapDrop        []string
		Privileged     bool
		ReadonlyRootfs bool
		SecurityOpt    []string
		NetworkMode    string
		PidMode        string
		PidsLimit      *int64
		Memory         int64
		RestartPolicy  struct{ Name string }
		PortBindings   map[string][]struct{ HostIp, HostPort string }
	}
	Mounts []struct{ Source, Destination string }
}

func (c container) service() string { return c.Config.Labels["com.docker.compose.service"] }

func (p *project) inspect(t *testing.T, ids ...string) []container {
	t.Helper()
	var out []container
	if err := json.Unmarshal([]byte(p.Docker(t, append([]string{"inspect"}, ids...)...)), &out); err != nil {
		t.Fatalf("docker inspect: %v", err)
	}
	return out
}

func (p *project) containers(t *testing.T) []container {
	t.Helper()
	ids := strings.Fields(p.Docker(t, "ps", "--all", "--quiet", "--filter", p.filter()))
	if len(ids) == 0 {
		t.Fatal("no container is there")
	}
	return p.inspect(t, ids...)
}

// awaitHealthy waits until the services have that many healthy containers.
func (p *project) awaitHealthy(t *testing.T, want map[string]int) {
	t.Helper()
	enginetest.Await(t, patience, func(context.Context) error {
		healthy := map[string]int{}
		var states []string
		for _, c := range p.containers(t) {
			state := c.State.Status
			if c.State.Health != nil {
				state = c.State.Health.Status
			}
			if state == "healthy" {
				healthy[c.service()]++
			}
			states = append(states, c.Name+" "+state)
		}
		if !maps.Equal(healthy, want) {
			return fmt.Errorf("healthy are %v, want %v; %s", healthy, want, strings.Join(states, ", "))
		}
		return nil
	})
}

// sandboxes are the containers that the system's sessions have.
func (p *project) sandboxes(t *testing.T) []string {
	t.Helper()
	return strings.Fields(p.Docker(t, "ps", "--all", "--quiet", "--filter", "label=dev.skandha.sandbox.owner="+p.name))
}

// hardened holds a container to what the head of docker-compose.yml says.
func (c container) hardened(t *testing.T) {
	t.Helper()
	h := c.HostConfig
	for problem, found := range map[string]bool{
		"is privileged":                     h.Privileged,
		"has a writable root":               !h.ReadonlyRootfs,
		"keeps capabilities":                !slices.Equal(h.CapDrop, []string{"ALL"}) || len(h.CapAdd) > 0,
		"may gain privileges":               !slices.Contains(h.SecurityOpt, "no-new-privileges:true"),
		"shares a namespace of the host":    h.NetworkMode == "host" || h.PidMode == "host",
		"has the engine and a network":      c.service() == "engine" && h.NetworkMode != "none",
		"may start any number of processes": h.PidsLimit == nil || *h.PidsLimit <= 0,
		"may take all memory":               h.Memory <= 0,
		"stays down":                        h.RestartPolicy.Name != "unless-stopped",
		"runs as root": c.service() != "nats" && c.service() != "engine" &&
			(c.Config.User == "" || strings.HasPrefix(c.Config.User, "0")),
	} {
		if found {
			t.Errorf("%s %s", c.Name, problem)
		}
	}
	for _, m := range c.Mounts {
		if c.service() == "engine" && m.Destination == "/var/run/docker.sock" {
			continue // it alone asks the engine
		}
		if strings.HasSuffix(m.Source, ".sock") || strings.HasSuffix(m.Destination, ".sock") || m.Source == "/" {
			t.Errorf("%s sees %s of the host", c.Name, m.Source)
		}
	}
	for port, bindings := range h.PortBindings {
		for _, b := range bindings {
			if !slices.Contains([]string{"nats", "listener", "uibridge"}, c.service()) || b.HostIp != "127.0.0.1" {
				t.Errorf("%s publishes %s on %q, want NATS, the listeners and the page on loopback alone", c.Name, port, b.HostIp)
			}
		}
	}
}
