package compose

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"skandha.dev/services/internal/enginetest"
)

// binaries are the services' commands, by the names of their images.
var binaries = map[string]string{
	"core": "skandha-core", "provider": "skandha-provider", "toolrunner": "skandha-toolrunner", "sandbox-service": "skandha-sandbox",
	"listener": "skandha-listener", "uibridge": "skandha-uibridge",
}

// images builds all images of docker-compose.yml under the prefix, and the
// skandha command, whose path it returns.
func (e *engine) images(t *testing.T, prefix, tag string) (skandha string) {
	t.Helper()
	dir := t.TempDir()
	build(t, dir, "skandha.dev/services/skandha", "skandha.dev/services/core/cmd/skandha-core",
		"skandha.dev/services/provider/cmd/skandha-provider", "skandha.dev/services/toolrunner/cmd/skandha-toolrunner",
		"skandha.dev/services/sandbox/cmd/skandha-sandbox", "skandha.dev/services/listener/cmd/skandha-listener",
		"skandha.dev/services/uibridge/cmd/skandha-uibridge", "github.com/nats-io/nats-server/v2")

	services := filepath.Join(dir, "services")
	copyFile(t, "/etc/ssl/certs/ca-certificates.crt", filepath.Join(services, "ca-certificates.crt"))
	mkdir(t, filepath.Join(services, "data"))
	for service, binary := range binaries {
		copyFile(t, filepath.Join(dir, binary), filepath.Join(services, binary))
		e.build(t, prefix+"/"+service+":"+tag, services, root+"/deploy/docker/Dockerfile.prebuilt", "--build-arg", "BINARY="+binary)
	}

	nats := filepath.Join(dir, "nats")
	copyFile(t, filepath.Join(dir, "nats-server"), filepath.Join(nats, "rootfs/usr/local/bin/nats-server"))
	install(t, filepath.Join(nats, "rootfs"), "busybox", "/usr/bin/wget")
	e.build(t, prefix+"/nats:"+tag, nats, write(t, nats, "FROM scratch", "COPY rootfs /", "ENV PATH=/usr/local/bin:/usr/bin"))

	redis := filepath.Join(dir, "redis")
	mkdir(t, filepath.Join(redis, "data"))
	install(t, filepath.Join(redis, "rootfs"), "redis-server", "/usr/bin/redis-server")
	install(t, filepath.Join(redis, "rootfs"), "redis-cli", "/usr/bin/redis-cli")
	e.build(t, prefix+"/redis:"+tag, redis, write(t, redis, "FROM scratch", "COPY rootfs /", "COPY --chown=999:1000 data /data", "ENV PATH=/usr/bin"))

	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience) // the test's own is over
		defer cancel()
		for _, name := range append(slices.Collect(maps.Keys(binaries)), "nats", "redis") {
			enginetest.Output(t, e.Command(ctx, "docker", "rmi", "--force", prefix+"/"+name+":"+tag))
		}
	})
	return filepath.Join(dir, "skandha")
}

// build compiles commands into static binaries, as make build does.
func build(t *testing.T, dir string, packages ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"build", "-trimpath", "-ldflags", "-s -w", "-o", dir + "/"}, packages...)...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	enginetest.Output(t, cmd)
}

func (e *engine) build(t *testing.T, image, dir, dockerfile string, args ...string) {
	t.Helper()
	e.Docker(t, append([]string{"build", "--quiet", "--tag", image, "--file", dockerfile, dir}, args...)...)
}

// write makes a Dockerfile.
func write(t *testing.T, dir string, lines ...string) string {
	t.Helper()
	name := filepath.Join(dir, "Dockerfile")
	if err := os.WriteFile(name, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// install copies a program of this machine, and the libraries that it loads.
func install(t *testing.T, rootfs, program, as string) {
	t.Helper()
	from, err := exec.LookPath(program)
	if err != nil {
		enginetest.Missing(t, program+" is not installed")
	}
	copyFile(t, from, filepath.Join(rootfs, as))
	libraries, err := exec.CommandContext(t.Context(), "ldd", from).Output()
	if err != nil {
		return // static
	}
	for word := range strings.FieldsSeq(string(libraries)) {
		if strings.HasPrefix(word, "/") {
			copyFile(t, word, filepath.Join(rootfs, word))
		}
	}
}

// copyFile copies what the name leads to, with the directories above it.
func copyFile(t *testing.T, from, to string) {
	t.Helper()
	mkdir(t, filepath.Dir(to))
	if err := func() error {
		src, err := os.Open(from)
		if err != nil {
			return err
		}
		defer func() { _ = src.Close() }()
		dst, err := os.OpenFile(to, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o755)
		if err != nil {
			return err
		}
		_, err = io.Copy(dst, src)
		return closing(dst, err)
	}(); err != nil {
		t.Fatalf("copying %s: %v", from, err)
	}
}

func closing(f *os.File, err error) error {
	if e := f.Close(); err == nil && e != nil {
		return fmt.Errorf("closing: %w", e)
	}
	return err
}

func mkdir(t *testing.T, dir string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
}
