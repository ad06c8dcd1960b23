package deps

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"skandha.dev/services/test/depstest"
)

// want parses a test's requirements.
func want(t testing.TB, list ...string) Requirements {
	t.Helper()
	reqs, errs := Parse(list)
	if errs != nil {
		t.Fatal(errors.Join(errs...))
	}
	return reqs
}

// bench is an index, sandboxes, and a manager of both.
type bench struct {
	*Manager
	index     *depstest.Index
	sandboxes *sandboxes
	t         testing.TB

	mu       sync.Mutex
	progress []string
}

func setUp(t testing.TB, cfg Config, sources ...depstest.Source) *bench {
	t.Helper()
	b := &bench{t: t, sandboxes: newSandboxes(t), index: depstest.New(t, sources...)}
	cfg.Index = b.index.Listen("127.0.0.1:0")
	m, err := New(cfg, b.sandboxes)
	if err != nil {
		t.Fatal(err)
	}
	b.Manager = m
	return b
}

func (b *bench) ensure(list ...string) (string, error) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), 5*time.Minute) // on a slow machine that does other things
	defer cancel()
	return b.Ensure(ctx, want(b.t, list...), func(line string) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.progress = append(b.progress, line)
	})
}

// refused checks for a failure with the code, whose message has all the words.
func (b *bench) refused(err error, code Code, words ...string) {
	b.t.Helper()
	var e *Error
	if !errors.As(err, &e) || e.Code != code {
		b.t.Fatalf("got %v, want an error with code %s", err, code)
	}
	for _, w := range words {
		if !strings.Contains(e.Error(), w) {
			b.t.Errorf("%q does not say %q", e.Error(), w)
		}
	}
	if strings.Contains(e.Error(), "127.0.0.1") {
		b.t.Errorf("%q names the index", e.Error())
	}
	if left := b.sandboxes.files(""); len(left) > 0 {
		b.t.Errorf("the failed installation has left %q", left)
	}
}

var greet = depstest.Wheel{
	Name: "greet", Version: "1.0", Files: map[string]string{"greet.py": "WORD = 'hello'"},
	Requires: []string{"Num.Bers>=2"},
}

var numbers = []depstest.Source{
	depstest.Wheel{Name: "num-bers", Version: "1.0", Files: map[string]string{"num_bers.py": "N = 1"}},
	depstest.Wheel{Name: "num-bers", Version: "2.5", Files: map[string]string{"num_bers.py": "N = 25"}},
}

func TestAPackageComesWithWhatItNeeds(t *testing.T) {
	b := setUp(t, Config{}, append(numbers, greet)...)
	id, err := b.ensure("Greet")
	if err != nil {
		t.Fatal(err)
	}
	if got := b.sandboxes.run(id, "import greet, num_bers; print(greet.WORD, num_bers.N)"); got != "hello 25" {
		t.Errorf("the packages say %q, want hello 25", got)
	}
	for _, line := range []string{"collecting greet", "collecting Num.Bers", "installing 2 packages", "checking"} {
		if !slices.Contains(b.progress, line) {
			t.Errorf("progress %q does not say %q", b.progress, line)
		}
	}
	if !slices.ContainsFunc(b.progress,
		func(s string) bool { return strings.HasPrefix(s, "downloading greet-1.0-py3-none-any.whl") }) {
		t.Errorf("progress %q says nothing of a download", b.progress)
	}
	for _, f := range b.sandboxes.files(id) {
		if strings.HasPrefix(f, ".") {
			t.Errorf("the set has %s, which is the installer's own", f)
		}
	}
	if !slices.ContainsFunc(b.sandboxes.files(id),
		func(f string) bool { return strings.HasPrefix(f, "__pycache__/greet.") }) {
		t.Errorf("the set %q has nothing compiled, so each call would compile it again", b.sandboxes.files(id))
	}
}

func TestASetIsMadeOnce(t *testing.T) {
	b := setUp(t, Config{}, append(numbers, greet)...)
	ids := make([]string, 8)
	var all sync.WaitGroup
	for i := range ids {
		all.Go(func() {
			id, err := b.ensure("greet", "num_bers==2.5")
			if err != nil {
				t.Error(err)
			}
			ids[i] = id
		})
	}
	all.Wait()
	again, err := b.ensure("NUM-BERS == v2.5.0", "greet")
	if err != nil {
		t.Fatal(err)
	}
	if n := b.sandboxes.count(); n != 2 { // 2.5 and 2.5.0 are spelled differently
		t.Errorf("%d installations, want 2", n)
	}
	for _, id := range ids {
		if id != ids[0] || id == again {
			t.Errorf("the sets are %q and %s", ids, again)
		}
	}
	other, err := New(Config{Index: b.cfg.Index}, b.sandboxes)
	if err != nil {
		t.Fatal(err)
	}
	if id, err := other.Ensure(t.Context(), want(t, "greet", "num_bers==2.5"), nil); err != nil || id != ids[0] {
		t.Errorf("another manager gets %s, %v, want the set that is there", id, err)
	}
	if n := b.sandboxes.count(); n != 2 {
		t.Errorf("%d installations, want no more than 2", n)
	}
}

func TestNothingNeedsNoSet(t *testing.T) {
	b := setUp(t, Config{})
	if id, err := b.ensure(); id != "" || err != nil {
		t.Errorf("no requirements give %q, %v, want no set", id, err)
	}
}

func TestWhyItCouldNotBeInstalled(t *testing.T) {
	away := depstest.Status(http.StatusServiceUnavailable)
	for name, c := range map[string]struct {
		ask     []string
		sources []depstest.Source
		faults  map[string]http.HandlerFunc
		code    Code
		words   []string
	}{
		"no such package": {ask: []string{"nothere"}, code: NotFound, words: []string{"nothere", "check the name"}},
		"no such version": {
			ask: []string{"num-bers==7"}, sources: numbers, code: NotFound, words: []string{"num-bers==7", "1.0, 2.5"},
		},
		"a missing need": {
			ask: []string{"greet"}, sources: []depstest.Source{greet}, code: NotFound, words: []string{"Num.Bers", "greet"},
		},
		"source only": {
			ask: []string{"sourcy"}, sources: []depstest.Source{depstest.SDist{Name: "sourcy", Version: "1.0"}}, code: NoWheel,
			words: []string{"sourcy", "source only"},
		},
		"a need in source": {
			ask: []string{"greet"}, sources: []depstest.Source{greet, depstest.SDist{Name: "num-bers", Version: "3.0"}},
			code: NoWheel, words: []string{"source only"},
		},
		"another platform": {
			ask:     []string{"native"},
			sources: []depstest.Source{depstest.Wheel{Name: "native", Version: "1.0", Tag: "cp311-cp311-win_amd64"}},
			code:    NoWheel, words: []string{"native", "other platforms"},
		},
		"another Python": {
			ask:     []string{"future"},
			sources: []depstest.Source{depstest.Wheel{Name: "future", Version: "1.0", RequiresPython: ">=4"}}, code: NoWheel,
			words: []string{"future", "other versions of Python"},
		},
		"a conflict": {
			ask: []string{"greet", "num-bers<2"}, sources: append(numbers, greet), code: Conflict,
			words: []string{"greet 1.0 depends on", "The user requested num-bers<2"},
		},
		"an index in errors": {
			ask: []string{"greet"}, sources: []depstest.Source{greet},
			faults: map[string]http.HandlerFunc{"/simple/greet/": away}, code: Unreachable,
		},
		"a file with errors": {
			ask: []string{"greet"}, sources: append(numbers, greet),
			faults: map[string]http.HandlerFunc{"/files/greet-1.0-py3-none-any.whl": depstest.Status(500)}, code: Unreachable,
		},
		"another file than the index says": {ask: []string{"num-bers"}, code: Hostile, sources: []depstest.Source{
			func() depstest.File {
				f := numbers[0].File("")
				f.SHA256 = strings.Repeat("0", 64)
				return f
			}(),
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setUp(t, Config{}, c.sources...)
			for path, fault := range c.faults {
				b.index.Fault(path, fault)
			}
			_, err := b.ensure(c.ask...)
			b.refused(err, c.code, c.words...)
			if ran := b.index.Marks(); len(ran) > 0 {
				t.Errorf("the setup.py of %q ran", ran)
			}
		})
	}
}

func TestAnIndexThatIsNotThere(t *testing.T) {
	b := setUp(t, Config{})
	m, err := New(Config{Index: "http://127.0.0.1:1/simple"}, b.sandboxes)
	if err != nil {
		t.Fatal(err)
	}
	_, err = m.Ensure(t.Context(), want(t, "greet"), nil)
	b.refused(err, Unreachable)
}

func TestAnIndexThatIsSlow(t *testing.T) {
	b := setUp(t, Config{Timeout: 2 * time.Second}, greet)
	b.index.Fault("/simple/greet/", b.index.Hang)
	_, err := b.ensure("greet")
	b.refused(err, Timeout)
}

func TestAPythonWithoutPip(t *testing.T) {
	b := setUp(t, Config{}, append(numbers, greet)...)
	pip, err := exec.CommandContext(t.Context(), b.sandboxes.python, "-I", "-c",
		"import os, pip; print(os.path.dirname(pip.__file__), end='')").Output()
	if err != nil {
		t.Fatal(err)
	}
	b.sandboxes.masked = []string{string(pip)}
	_, err = b.ensure("greet")
	b.refused(err, NoPip, "no pip", "python3-pip")
}

func TestARequirementThatNobodyParsed(t *testing.T) {
	b := setUp(t, Config{})
	if _, err := b.Ensure(t.Context(), make(Requirements, 1), nil); err == nil || b.sandboxes.count() > 0 {
		t.Errorf("got %v and %d installations, want an error", err, b.sandboxes.count())
	}
}

func TestTooManyPackages(t *testing.T) {
	b := setUp(t, Config{})
	var all Requirements
	for i := range MaxPackages + 1 {
		all = Merge(all, want(t, fmt.Sprintf("p%d", i)))
	}
	_, err := b.Ensure(t.Context(), all, nil)
	b.refused(err, TooMany, "129, want at most 128")
}

// A failure is cached for a while; afterwards the index is queried again.
func TestAFailureIsRemembered(t *testing.T) {
	b := setUp(t, Config{}, append(numbers, greet)...)
	now := time.Now()
	b.now = func() time.Time { return now }
	b.index.Fault("/simple/greet/", depstest.Status(http.StatusNotFound))
	_, err := b.ensure("greet")
	b.refused(err, NotFound)
	b.index.Fault("/simple/greet/", nil)
	asked := len(b.index.Requests())
	now = now.Add(20 * time.Second)
	_, err = b.ensure("greet")
	b.refused(err, NotFound, "tried 20s ago")
	if len(b.index.Requests()) != asked {
		t.Error("the index was asked again at once")
	}
	now = now.Add(10 * time.Second)
	if _, err := b.ensure("greet"); err != nil {
		t.Errorf("after a while: %v", err)
	}
}

// A caller that gives up ends the installation only if no other caller waits for it.
func TestNobodyWaitsAnyMore(t *testing.T) {
	b := setUp(t, Config{}, append(numbers, greet)...)
	asked := make(chan struct{}, 8)
	b.index.Fault("/simple/greet/", func(w http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		b.index.Hang(w, r)
	})
	wait := func() (context.CancelFunc, chan error) {
		ctx, cancel := context.WithCancel(t.Context())
		end := make(chan error, 1)
		go func() {
			_, err := b.Ensure(ctx, want(t, "greet"), nil)
			end <- err
		}()
		return cancel, end
	}
	leave1, end1 := wait()
	<-asked
	leave2, end2 := wait()
	eventually(t, "both wait", func() bool { return b.waiting() == 2 })
	leave1()
	if err := <-end1; !errors.Is(err, context.Canceled) {
		t.Errorf("who left got %v", err)
	}
	leave2()
	if err := <-end2; !errors.Is(err, context.Canceled) {
		t.Errorf("who left got %v", err)
	}
	b.index.Fault("/simple/greet/", nil)
	if _, err := b.ensure("greet"); err != nil {
		t.Errorf("who comes after all have left: %v", err)
	}
	if n := b.sandboxes.count(); n != 2 {
		t.Errorf("%d installations, want the one that was ended and one more", n)
	}
	for _, f := range b.sandboxes.files("") {
		if strings.HasPrefix(f, "half-") {
			t.Errorf("the installation that was ended has left %s", f)
		}
	}
}

func (b *bench) waiting() (n int) {
	b.Manager.mu.Lock()
	defer b.Manager.mu.Unlock()
	for _, f := range b.flights {
		n += len(f.listeners)
	}
	return n
}

// eventually waits until the condition holds.
func eventually(t testing.TB, what string, so func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	late := time.After(time.Minute)
	for !so() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("not so after a minute: %s", what)
		}
	}
}
