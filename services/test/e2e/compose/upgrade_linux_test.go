package compose

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"skandha.dev/services/test/enginetest"
)

// image is the id of the image that a service's containers run.
func (p *project) image(t *testing.T, service string) string {
	t.Helper()
	all := p.containers(t)
	at := slices.IndexFunc(all, func(c container) bool { return c.service() == service })
	if at < 0 {
		t.Fatalf("%s has no container", service)
	}
	return p.Docker(t, "inspect", "--format", "{{.Image}}", all[at].ID)
}

// release replaces the image of a service by one that differs.
func (p *project) release(t *testing.T, service, change string) {
	t.Helper()
	name := p.name + "/" + service + ":test"
	c := p.Docker(t, "create", name)
	cmd := p.Command(t.Context(), "sh", "-c", `docker export "$0" | docker import "$@"`, c,
		"--change", "USER 65532:65532", "--change", "WORKDIR /data", "--change", "ENV HOME=/data",
		"--change", `ENTRYPOINT ["/service"]`, "--change", change, "-", name)
	enginetest.Output(t, cmd)
	p.Docker(t, "rm", c)
}

// backups is where the scripts put archives.
func (p *project) backups() string { return filepath.Join(p.dir, "backups") }

// tool runs a script with settings, and returns what it prints.
func (p *project) tool(t *testing.T, name string, env ...string) (string, error) {
	t.Helper()
	cmd := p.script(t.Context(), "deploy/dev/"+name)
	cmd.Env = append(append(cmd.Env, "IMAGES=present", "BACKUPS="+p.backups(), "PATIENCE=120"), env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// upgrade has a new core that does not run. Going back replaces it by one that does.
func (p *project) upgrade(t *testing.T) {
	core := p.image(t, "core")
	p.release(t, "core", `ENTRYPOINT ["/service", "--no-such-flag"]`)
	out, err := p.tool(t, "compose-upgrade.sh")
	for _, want := range []string{
		"the backup is ", "not in it: the keys of the bus", "toolrunner: as it was", "unknown flag --no-such-flag",
		"STOPPED: core does not run", "make compose-back", "make compose-restore FILE=",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("the upgrade does not say %q", want)
		}
	}
	if err == nil || p.image(t, "core") == core || t.Failed() {
		t.Fatalf("the upgrade ended with %v:\n%s", err, out)
	}
	if out, err := p.tool(t, "compose-upgrade.sh", "BACK=yes"); err != nil ||
		!strings.Contains(out, "core: replaced, and healthy") || !strings.Contains(out, "all services are healthy") {
		t.Fatalf("going back ended with %v:\n%s", err, out)
	}
	if p.image(t, "core") != core {
		t.Error("the image of core is not the one from before the upgrade")
	}
	if n := len(p.containers(t)); n != 11 {
		t.Errorf("there are %d containers, want the two tool runners and nine others", n)
	}
	if answer := p.ask(t, "what is 5*5?"); !strings.Contains(answer, "25") {
		t.Errorf("5*5 is %q, want 25 in it", answer)
	}
}

// restore goes back to the backup that the upgrade took.
func (p *project) restore(t *testing.T) {
	all, err := filepath.Glob(filepath.Join(p.backups(), "skandha-*.backup"))
	if err != nil || len(all) != 1 {
		t.Fatalf("backups are %v, %v", all, err)
	}
	if info, err := os.Stat(all[0]); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("others can read the backup: %v, %v", info, err)
	}
	p.ask(t, "write changed to hello.txt", "--yes")
	if out, err := p.tool(t, "compose-restore.sh", "FILE="+all[0]); err == nil || !strings.Contains(out, "not empty") {
		t.Errorf("over a system that is not empty it ended with %v:\n%s", err, out)
	}
	if out, err := p.tool(t, "compose-restore.sh", "FILE="+all[0], "REPLACE=yes"); err != nil ||
		!strings.Contains(out, "the keys are those of the backup") {
		t.Fatalf("it ended with %v:\n%s", err, out)
	}
	enginetest.Await(t, patience, func(ctx context.Context) error { return p.runners(ctx, 2) })
	if answer := p.ask(t, "what is in hello.txt?", "--yes"); !strings.Contains(answer, "swordfish") {
		t.Errorf("hello.txt is %q, want swordfish in it, as in the backup", answer)
	}
	p.judged(t, true)
}
