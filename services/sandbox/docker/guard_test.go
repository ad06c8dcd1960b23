package docker

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"testing"

	"skandha.dev/services/sandbox/docker/form"
	"skandha.dev/services/sandbox/driver"
	"skandha.dev/services/test/enginetest"
)

// A client that has the proxy's socket, and Docker's own command, gets nowhere: not to the containers of others, and
// no further in those of the owner. The attacks on single rules are in the tests of the proxy.
func TestDockersCommandGetsNothingThroughTheProxy(t *testing.T) {
	r := newRig(t)
	ours := r.start(t, runner, small, "")
	suffix := strings.ToLower(rand.Text())
	theirs, volume := "skandha-test-"+suffix, "skandha-test-data-"+suffix
	r.engine.Docker(t, "run", "--detach", "--interactive", "--name", theirs, "--network", "none", r.image, "python3", "-c",
		"input()")
	r.engine.Docker(t, "volume", "create", volume)
	t.Cleanup(func() {
		ctx := context.Background()
		_ = r.engine.Command(ctx, "docker", "rm", "--force", theirs).Run()
		_ = r.engine.Command(ctx, "docker", "volume", "rm", volume).Run()
	})
	id := r.engine.Docker(t, "inspect", "--format", "{{.Id}}", theirs)
	before := r.engine.Docker(t, "ps", "--all", "--quiet", "--no-trunc")
	label := "--label=" + form.LabelOwner + "=" + r.cfg.Owner
	image := r.engine.Docker(t, "image", "inspect", "--format", "{{.Id}}", r.image)
	named := "run --rm --name " + r.cfg.Owner + "-box-" + suffix[:8] + "-x "
	for _, line := range []string{
		named + "--privileged " + label + " " + image + " true", named + "-v /:/host " + label + " " + image + " true",
		named + "--pid=host " + label + " " + image + " true", named + image + " true",
		"create " + label + " " + r.image + " true", "create --net=host " + r.image, "ps", "ps --all", "images", "version",
		"volume ls", "network ls", "inspect " + theirs, "inspect " + id, "inspect " + ours.Sandbox.(*sandbox).id,
		"exec " + theirs + " true", "exec " + id + " true", "exec " + ours.Sandbox.(*sandbox).id + " true", "kill " + theirs,
		"kill " + id, "stop --time 0 " + id, "pause " + id, "rename " + id + " x",
		"update --memory 64m " + id, "rm --force " + theirs,
		"rm --force --volumes " + id, "logs " + id, "top " + id, "diff " + id, "attach " + id,
		"start --attach " + id, "wait " + id,
		"commit " + id, "export " + id, "cp " + id + ":/etc/passwd -", "cp /etc/passwd " + id + ":/tmp",
		"pull skandha-test/none", "tag " + r.image + " skandha-test/none", "rmi " + r.image, "save " + r.image,
		"volume create --opt type=none --opt o=bind --opt device=/ x", "volume inspect " + volume, "volume rm " + volume,
		"volume prune --force", "system prune --force", "container prune --force", "network create x", "swarm init",
		"plugin ls", "system df", "events --since 0 --until 1",
	} {
		cmd := r.engine.Command(t.Context(), "docker", strings.Fields(line)...)
		cmd.Env = append(cmd.Env, "DOCKER_HOST="+r.cfg.Host)
		if out, err := cmd.CombinedOutput(); err == nil {
			t.Errorf("docker %s: %s", line, out)
		}
	}
	if after := r.engine.Docker(t, "ps", "--all", "--quiet", "--no-trunc"); after != before {
		t.Errorf("there were containers %s, and now %s", before, after)
	}
	if state := r.engine.Docker(t, "inspect", "--format", "{{.State.Status}} {{.Name}}", id); state != "running /"+theirs {
		t.Errorf("the container of others is %s", state)
	}
	r.engine.Docker(t, "volume", "inspect", volume)
	if out, _ := ours.do(t, "print(1)"); out != "1" {
		t.Errorf("the sandbox says %q", out)
	}
}

// With the proxy its sandboxes end, as with the engine; nothing of them is left, and the driver goes on with the next.
func TestProxyThatEnds(t *testing.T) {
	r := newRig(t)
	b := r.start(t, runner, small, "")
	r.restart()
	if err := awaitEnd(t, b); !errors.Is(err, errLost) {
		t.Errorf("the sandbox ended because %v, want %v", err, errLost)
	}
	r.awaitLeft(t, 0)
	next := r.start(t, runner, small, "")
	if out, _ := next.do(t, "print(1)"); out != "1" {
		t.Errorf("the next sandbox says %q", out)
	}
}

// Without a proxy, as in an embedded system, the driver does the same.
func TestDriverWithoutProxy(t *testing.T) {
	r := directRig(t)
	if r.engine.PID == 0 {
		enginetest.Missing(t, "the engine is not ours, so packages cannot be served to it")
	}
	id := newID()
	in := driver.Install{ID: id, Args: append(r.index(t), "greeting"), MaxBytes: 1 << 20}
	if err := r.Install(t.Context(), in); err != nil {
		t.Fatal(err)
	}
	b := r.start(t, runner, small, id)
	if out, ok := b.do(t, usesGreeting); !ok || out != "hello" {
		t.Errorf("the sandbox says %q, %t", out, ok)
	}
	if err := b.Destroy(t.Context()); err != nil {
		t.Error(err)
	}
	if err := r.RemoveSet(t.Context(), id); err != nil {
		t.Error(err)
	}
	r.awaitLeft(t, 1)
}
