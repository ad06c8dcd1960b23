package test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

const root = "../../.."

// variables are the environment variables that the sources of a service read: those of flags, and constants.
var variable = regexp.MustCompile(`env:"([A-Z][A-Z0-9_]*)"|"(SKANDHA_[A-Z0-9_]+)"`)

var variables = sync.OnceValue(func() map[string]map[string]bool {
	out := map[string]map[string]bool{}
	for _, component := range []string{"core", "provider", "toolrunner", "listener", "uibridge"} {
		names := map[string]bool{"GOMEMLIMIT": true} // of the Go runtime
		for _, dir := range []string{component, "internal/process"} {
			err := filepath.WalkDir(filepath.Join(root, "services", dir), func(path string, _ fs.DirEntry, err error) error {
				if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
					return err
				}
				source, err := os.ReadFile(path)
				for _, m := range variable.FindAllStringSubmatch(string(source), -1) {
					names[m[1]+m[2]] = true
				}
				return err
			})
			if err != nil {
				panic(err)
			}
		}
		out[component] = names
	}
	return out
})

var expanded = regexp.MustCompile(`\$\(([A-Z_]+)\)`)

// environment: each variable is one that the program reads, and is there once. What a value refers to comes before it.
func environment(c *cluster) []string {
	return c.eachContainer(func(w *workload, k *corev1.Container, say func(string, ...any)) {
		values, seen := "", map[string]bool{}
		for _, e := range k.Env {
			values += e.Value + "\n"
		}
		for _, e := range k.Env {
			if seen[e.Name] {
				say("%s is there twice", e.Name)
			}
			seen[e.Name] = true
			for _, m := range expanded.FindAllStringSubmatch(e.Value, -1) {
				if !seen[m[1]] {
					say("%s refers to %s, which does not come before it", e.Name, m[1])
				}
			}
			ours := strings.HasPrefix(e.Name, "SKANDHA_") || e.Name == "GOMEMLIMIT"
			known := variables()[w.component()]
			switch {
			case strings.Contains(values, "$("+e.Name+")"):
			case known != nil && ours && !known[e.Name]:
				say("%s reads no %s", w.component(), e.Name)
			case known == nil && e.Name != "GOMEMLIMIT" && e.Name != "REDISCLI_AUTH" &&
				!strings.Contains(c.scripts(w), "$"+e.Name):
				say("no script reads %s", e.Name)
			}
		}
	})
}

// scripts returns the text of the configuration that the pods mount.
func (c *cluster) scripts(w *workload) (text string) {
	if m := c.configs[w.name]; m != nil {
		for _, s := range m.Data {
			text += strings.ReplaceAll(s, "${", "$")
		}
	}
	return text
}

// The images are those that docker-compose.yml builds, and the keys those that `skandha secrets` writes.
func TestImagesAndKeysExist(t *testing.T) {
	compose := read(t, "docker-compose.yml")
	for _, w := range render(t, "").workloads {
		if w.deployment == nil {
			continue
		}
		name := w.component()
		if image := "skandha/" + name + ":devel"; w.pod.Spec.Containers[0].Image != image {
			t.Errorf("%s has the image %s", name, w.pod.Spec.Containers[0].Image)
		}
		if !strings.Contains(compose, "/"+name+":${SKANDHA_VERSION") {
			t.Errorf("docker-compose.yml has no image of %s", name)
		}
		if !strings.Contains(compose, "/"+name+".key") {
			t.Errorf("docker-compose.yml has no key of %s", name)
		}
	}
	for component, image := range map[string]string{"nats": "NATS_IMAGE=nats:", "redis": "REDIS_IMAGE=redis:"} {
		_, rest, found := strings.Cut(read(t, "deploy/docker/Dockerfile"), "ARG "+image)
		version, _, _ := strings.Cut(rest, "\n")
		want := component + ":" + version
		if is := render(t, "").workload(component).pod.Spec.Containers[0].Image; !found || is != want {
			t.Errorf("the image of %s is %s, in the Dockerfile %s", component, is, want)
		}
	}
}

// What KEDA asks for are metrics of core, which a test of core holds to their meaning.
func TestMetricsExist(t *testing.T) {
	names := regexp.MustCompile(`skandha_([a-z_]+)`)
	tested := read(t, "services/core/shell/overload_test.go")
	var all []string
	for _, values := range []string{variations["keda"], `provider: {autoscaling: {kind: keda}}`} {
		for _, s := range render(t, values).scaled {
			for _, m := range names.FindAllStringSubmatch(fmt.Sprint(s.Spec.Triggers[0].Metadata), -1) {
				all = append(all, m[1])
				if !strings.Contains(tested, `"`+m[1]+`"`) {
					t.Errorf("%s: no test of core names the metric %s", s.Name, m[1])
				}
			}
		}
	}
	for _, want := range []string{"provider_slots", "provider_slots_busy", "toolrunner_slots_busy", "queued_sessions"} {
		if !slices.Contains(all, want) {
			t.Errorf("nothing scales by %s: %q", want, all)
		}
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
