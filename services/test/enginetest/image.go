package enginetest

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// recipes is the directory that builds the sandbox's image, relative to the repository.
const recipes = "deploy/docker/sandbox"

// lightImage is the tag of the image without numpy, pandas and matplotlib.
const lightImage = "skandha-test/sandbox:light"

var importing sync.Mutex

// SandboxImage loads the sandbox's image, without numpy, pandas and matplotlib, into the
// engine, and returns its name. The first build on a machine needs debootstrap, root and
// some minutes; later ones take a second or two. Without debootstrap it is built from the
// Dockerfile, which needs a registry.
func SandboxImage(t testing.TB, e *Engine) string {
	t.Helper()
	importing.Lock()
	defer importing.Unlock()
	dir := tree(t, recipes)
	out, err := e.Command(t.Context(), filepath.Join(dir, "build.sh"), "--light", "--tag", lightImage).CombinedOutput()
	if err == nil {
		return lightImage
	}
	if _, ok := errors.AsType[*exec.ExitError](err); !ok {
		t.Fatalf("%s/build.sh: %v", recipes, err)
	}
	built, err := e.Command(t.Context(), "docker", "build", "--quiet", "--build-arg", "PACKAGES=", "--tag", lightImage,
		dir).CombinedOutput()
	if err != nil {
		Missing(t, "the sandbox's image cannot be built:\n"+string(out)+string(built))
	}
	return lightImage
}

// tree returns the path of a directory of the repository.
func tree(t testing.TB, name string) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			return filepath.Join(dir, name)
		}
		if dir == filepath.Dir(dir) {
			t.Fatalf("%s is not above the test's directory", name)
		}
	}
}
