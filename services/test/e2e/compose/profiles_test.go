package compose

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"

	"skandha.dev/services/test/enginetest"
)

// composed is what matters of a compose file.
type composed struct {
	Services map[string]struct {
		Profiles    []string
		Environment map[string]any
		Volumes     []any
		Secrets     []any // each a name, or a source and a target
	}
}

// read reads a YAML file of the tree.
func read(t *testing.T, name string, into any) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, into); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// versions returns the compose commands that are here: the one that make uses, and one of another version. Where docker
// has no plugin in the environment, version 2 is the program that deploy/dev/compose-v2.sh fetches.
func versions(t *testing.T, env []string) (commands [][]string) {
	t.Helper()
	v1 := []string{"docker-compose"}
	out, err := exec.CommandContext(t.Context(), v1[0], "version", "--short").Output()
	isV1 := err == nil && strings.HasPrefix(string(out), "1.")
	plugin := exec.CommandContext(t.Context(), "docker", "compose", "version")
	plugin.Env = env
	if plugin.Run() == nil {
		commands = [][]string{{"docker", "compose"}}
		if isV1 { // else there is one version, and later Debians do not have the other
			commands = append(commands, v1)
		}
		return commands
	}
	enginetest.Need(t, v1[0])
	if !isV1 {
		return [][]string{v1}
	}
	path, err := exec.CommandContext(t.Context(), filepath.Join(root, "deploy/dev/compose-v2.sh")).Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = errors.New(string(exit.Stderr))
		}
		enginetest.Missing(t, err.Error())
	}
	return [][]string{v1, {strings.TrimSpace(string(path))}}
}

// Compose itself accepts the file with every profile, and with TLS.
func TestComposeAcceptsEveryProfile(t *testing.T) {
	for _, command := range versions(t, nil) {
		accepts(t, command)
	}
}

func accepts(t *testing.T, command []string) {
	t.Helper()
	for _, files := range []string{"docker-compose.yml", "docker-compose.yml:deploy/docker/tls.yml"} {
		cmd := exec.CommandContext(t.Context(), command[0], append(slices.Clone(command[1:]), "config", "--quiet")...)
		cmd.Dir = root
		cmd.Env = append(os.Environ(), "COMPOSE_FILE="+files,
			"COMPOSE_PROFILES=cli,adopt,gemini-legacy,observability,chroma,examples,example-listener",
			"SKANDHA_REDIS_PASSWORD=r", "SKANDHA_UI_TOKEN=u")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s, %s: %v\n%s", strings.Join(command, " "), files, err, out)
		}
	}
}

func TestPrometheusCollectsFromEveryServiceWithMetrics(t *testing.T) {
	var c composed
	read(t, "docker-compose.yml", &c)
	var p struct {
		Jobs []struct {
			DNS []struct{ Names []string } `yaml:"dns_sd_configs"`
		} `yaml:"scrape_configs"`
	}
	read(t, "deploy/observability/prometheus.yml", &p)
	names := " " + strings.Join(p.Jobs[0].DNS[0].Names, " ") + " "
	for name, s := range c.Services {
		if has := s.Environment["SKANDHA_HTTP"] == ":8080"; has != strings.Contains(names, " "+name+" ") {
			t.Errorf("%s has metrics: %t; Prometheus collects from%s", name, has, names)
		}
	}
}

// A key that is given to another service would let it act as that one.
func TestEveryServiceHasItsOwnKeyAlone(t *testing.T) {
	var c composed
	read(t, "docker-compose.yml", &c)
	all := map[string][]string{"nats": {"server.conf"}, "cli": {"operator"}, "core": {"core", "keys"}, "adopt": {"keys"}}
	for name, s := range c.Services {
		want := all[name]
		if s.Environment["SKANDHA_KEY"] != nil && want == nil {
			want = []string{name}
		}
		var got []string
		for _, secret := range s.Secrets {
			if m, ok := secret.(map[string]any); ok {
				secret = m["source"]
			}
			got = append(got, fmt.Sprint(secret))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s has the secrets %v, want %v", name, got, want)
		}
		if _, ok := s.Environment["SKANDHA_TOKEN"]; ok && name != "provider-gemini-legacy" {
			t.Errorf("%s has a token", name)
		}
	}
}

// A service that is forgotten would not find the bus any more.
func TestEveryServiceVerifiesTheBus(t *testing.T) {
	var c, over composed
	read(t, "docker-compose.yml", &c)
	read(t, "deploy/docker/tls.yml", &over)
	for name, s := range c.Services {
		if s.Environment["SKANDHA_NATS"] == nil || strings.HasPrefix(name, "example-") { // those speak no TLS
			continue
		}
		tls := over.Services[name]
		if tls.Environment["SKANDHA_NATS"] != "tls://nats:4222" || tls.Environment["SKANDHA_TLS_CA"] == nil || len(tls.Volumes) != 1 {
			t.Errorf("%s: with TLS it is %+v", name, tls)
		}
	}
}
