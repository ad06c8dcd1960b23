package compose

import (
	"os"
	"os/exec"
	"path/filepath"
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

// Compose itself accepts the file with every profile, and with TLS.
func TestComposeAcceptsEveryProfile(t *testing.T) {
	command := []string{"docker", "compose"}
	if exec.CommandContext(t.Context(), "docker", "compose", "version").Run() != nil {
		enginetest.Need(t, "docker-compose")
		command = []string{"docker-compose"}
	}
	for _, files := range []string{"docker-compose.yml", "docker-compose.yml:deploy/docker/tls.yml"} {
		cmd := exec.CommandContext(t.Context(), command[0], append(command[1:], "config", "--quiet")...)
		cmd.Dir = root
		cmd.Env = append(os.Environ(), "COMPOSE_FILE="+files,
			"COMPOSE_PROFILES=cli,gemini-legacy,observability,chroma,examples,example-listener",
			"SKANDHA_TOKEN=t", "SKANDHA_REDIS_PASSWORD=r", "SKANDHA_UI_TOKEN=u")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", files, err, out)
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
	read(t, "deploy/docker/prometheus.yml", &p)
	names := " " + strings.Join(p.Jobs[0].DNS[0].Names, " ") + " "
	for name, s := range c.Services {
		if has := s.Environment["SKANDHA_HTTP"] == ":8080"; has != strings.Contains(names, " "+name+" ") {
			t.Errorf("%s has metrics: %t; Prometheus collects from%s", name, has, names)
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
