package sandboxtest

import (
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"skandha.dev/services/sandbox/deps"
	"skandha.dev/services/sandbox/driver"
	"skandha.dev/services/test/depstest"
)

// sets creates package sets with a driver, good and hostile ones, and mounts them.
func (s *suite) sets(t *testing.T) {
	index := depstest.New(t,
		depstest.Wheel{
			Name: "greet", Version: "1.0", Files: map[string]string{"greet.py": "WORD = 'hello'"}, Requires: []string{"world"},
		},
		depstest.Wheel{Name: "world", Version: "2.0", Files: map[string]string{"world.py": "WORD = 'world'"}},
		depstest.Wheel{
			Name: "slips", Version: "1.0", Entries: []depstest.Entry{{Name: "../../../../../../tmp/slipped", Data: "x"}},
		},
		depstest.Wheel{Name: "bombs", Version: "1.0", Entries: []depstest.Entry{{Name: "bomb.bin", Fill: 256 << 20}}},
		depstest.Wheel{
			Name: "starts", Version: "1.0",
			Files: map[string]string{
				"starts.py": "", "starts.pth": "import os; os.write(1, b'started')",
				"sitecustomize.py": "import os; os.write(1, b'started')",
			},
		},
		depstest.Wheel{
			Name: "shadows", Version: "1.0",
			Files: map[string]string{"shadows.py": "", "json.py": "raise SystemExit(99)", "os.py": "raise SystemExit(99)"},
		},
		depstest.Wheel{Name: "elsewhere", Version: "1.0", Requires: []string{"runs @ {index}/files/runs-1.0.tar.gz"}},
		depstest.SDist{Name: "runs", Version: "1.0"},
	)
	m, err := deps.New(s.depsConfig(t, index), s.driver)
	if err != nil {
		t.Fatal(err)
	}
	t.Run("a set is mounted read-only and lasts as long as it is used", func(t *testing.T) { s.setIsMounted(t, m) })
	for _, c := range []struct{ name, entry string }{
		{"flag", "--index-url=http://127.0.0.1/"},
		{"short flag", "-rrequirements.txt"},
		{"URL", "https://example.com/evil.whl"},
		{"git+ssh", "git+ssh://git@example.com/evil.git"},
		{"direct reference", "evil @ file:///etc/passwd"},
		{"path", "./evil"},
		{"shell", "evil; rm -rf /"},
		{"newline", "greet\n--index-url=http://127.0.0.1/"},
	} {
		s.depsProbe(t, "dependency as a "+c.name, func(t *testing.T) (outcome, error) {
			if _, errs := deps.Parse([]string{c.entry}); len(errs) > 0 {
				return refused("%v", errs[0])
			}
			return hole("%q is accepted", c.entry)
		})
	}
	for _, c := range []struct {
		name, pkg string
		code      deps.Code
	}{
		{"setup.py payload", "runs", deps.NoWheel},
		{"wheel that slips", "slips", deps.Hostile},
		{"wheel that is a bomb", "bombs", deps.TooLarge},
		{"requirement of a source elsewhere", "elsewhere", deps.Hostile},
	} {
		s.depsProbe(t, c.name, func(t *testing.T) (outcome, error) { return s.hostilePackage(t, m, index, c.pkg, c.code) })
	}
	for _, pkg := range []string{"starts", "shadows"} {
		s.depsProbe(t, "package that "+pkg, func(t *testing.T) (outcome, error) { return s.sneakyPackage(t, m, pkg) })
	}
}

// hostilePackage checks that a package is refused with the right code, and leaves nothing.
func (s *suite) hostilePackage(
	t *testing.T, m *deps.Manager, index *depstest.Index, pkg string, code deps.Code,
) (outcome, error) {
	ctx := within(t)
	before, err := s.driver.Sets(ctx)
	if err != nil {
		return outcome{}, err
	}
	_, err = m.Ensure(ctx, requirements(t, pkg), func(string) {})
	var refusal *deps.Error
	if !errors.As(err, &refusal) || refusal.Code != code {
		return hole("installing it ends with %v, want a refusal as %q", err, code)
	}
	if ran := index.Marks(); len(ran) > 0 {
		return hole("code of %q ran", ran)
	}
	after, err := s.driver.Sets(ctx)
	if err != nil || len(after) > len(before) {
		return hole("it left a set: %v, %v", after, err)
	}
	return refused("%v", refusal)
}

// sneakyPackage checks that an installed package does not run by itself.
func (s *suite) sneakyPackage(t *testing.T, m *deps.Manager, pkg string) (outcome, error) {
	id, err := m.Ensure(within(t), requirements(t, pkg), func(string) {})
	if err != nil {
		return outcome{}, err
	}
	b := s.start(t, sandboxOptions{set: id})
	exit, err := b.python(t.Context(), "import "+pkg+", json, os; json.dumps([1])")
	if err != nil || exit.Code != 0 || strings.Contains(exit.Stdout.Text, "started") {
		return hole("with the package a run ends with %+v, %v", exit, err)
	}
	if _, err := b.List(within(t), "."); err != nil {
		return hole("with the package the agent reports %v", err)
	}
	if err := b.end(); err != nil {
		return hole("%v", err)
	}
	return harmless("it is installed, and nothing of it runs by itself")
}

// depsProbe runs a probe that needs no sandbox of the suite.
func (s *suite) depsProbe(t *testing.T, name string, try func(*testing.T) (outcome, error)) {
	t.Run(name, func(t *testing.T) {
		o, err := try(t)
		if err == nil {
			err = errors.Join(s.neighbour.knows(within(t)), s.host.unharmed())
		}
		if err != nil {
			o = outcome{isHole, err.Error()}
			t.Error(err)
		}
		s.table.add("dependencies", name, o)
	})
}

func (s *suite) depsConfig(t *testing.T, index *depstest.Index) deps.Config {
	t.Helper()
	cfg := deps.Config{MaxBytes: 32 << 20, Log: slog.New(slog.NewTextHandler(t.Output(), nil))}
	if s.Listen == nil {
		cfg.Index = index.Listen("127.0.0.1:0")
		return cfg
	}
	cfg.Index = index.Serve(s.Listen(t, "127.0.0.1:0"))
	return cfg
}

func requirements(t *testing.T, names ...string) deps.Requirements {
	t.Helper()
	reqs, errs := deps.Parse(names)
	if len(errs) > 0 {
		t.Fatal(errors.Join(errs...))
	}
	return reqs
}

func (s *suite) setIsMounted(t *testing.T, m *deps.Manager) {
	ctx := within(t)
	id, err := m.Ensure(ctx, requirements(t, "greet"), func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	b := s.start(t, sandboxOptions{set: id})
	var got []string
	if err := b.eval(ctx, &got, `
import greet, world
[greet.WORD, world.WORD, attempt(put, "/packages/greet.py", b"x"), attempt(os.mkdir, "/packages/evil"), attempt(os.unlink, "/packages/world.py"), attempt(os.chmod, "/packages/greet.py", 0o777)]`); err != nil {
		t.Fatal(err)
	}
	if got[0] != "hello" || got[1] != "world" {
		t.Errorf("the packages return %q", got[:2])
	}
	for _, said := range got[2:] {
		if strings.HasPrefix(said, "done") {
			t.Errorf("the set can be changed from a sandbox: %q", got)
		}
	}
	s.setIsKept(t, id, b)
	other := s.start(t, sandboxOptions{})
	var names []string
	if err := other.eval(ctx, &names, `os.listdir("/packages")`); err != nil || len(names) > 0 {
		t.Errorf("a sandbox without a set has %q (%v)", names, err)
	}
}

// setIsKept removes the set while the sandbox uses it, and afterwards.
func (s *suite) setIsKept(t *testing.T, id string, b *sandbox) {
	t.Helper()
	ctx := within(t)
	has := func() bool {
		sets, err := s.driver.Sets(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(sets, func(x driver.Set) bool { return x.ID == id })
	}
	if err := s.driver.RemoveSet(ctx, id); !errors.Is(err, driver.ErrInUse) {
		t.Errorf("removing a set in use: %v, want ErrInUse", err)
	}
	if !has() {
		t.Error("the set is not listed")
	}
	if err := b.end(); err != nil {
		t.Error(err)
	}
	if err := s.driver.RemoveSet(ctx, id); err != nil || has() {
		t.Errorf("removing an unused set: %v", err)
	}
	if err := s.driver.RemoveSet(ctx, id); err != nil && !errors.Is(err, driver.ErrNoSet) {
		t.Errorf("removing it again: %v", err)
	}
}
