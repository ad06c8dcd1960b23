package effects

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"skandha.dev/services/internal/toolschema"
	"skandha.dev/services/toolrunner/tools"
)

func bench(t *testing.T) (dir string, run func(ctx context.Context, name, args string) (bool, string)) {
	t.Helper()
	dir = t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = root.Close() })
	return dir, func(ctx context.Context, name, args string) (bool, string) {
		t.Helper()
		for _, tl := range toolsOf(root) {
			if tl.Spec.Name != name {
				continue
			}
			v, err := toolschema.Compile(tl.Spec)
			if err != nil {
				t.Fatal(err)
			}
			norm, errs := v.Validate(json.RawMessage(args))
			if errs != nil {
				return false, strings.Join(errs, "; ")
			}
			r := tl.Run(ctx, tools.Call{ID: "c1", Attempt: "n1", Args: norm})
			if !r.Success {
				return false, r.Error.Message
			}
			return true, string(r.Data)
		}
		t.Fatalf("there is no %s", name)
		return false, ""
	}
}

func TestCountLeavesOneLinePerEffect(t *testing.T) {
	dir, run := bench(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, step := range []struct {
		ctx        context.Context //nolint:containedctx // a table
		name, args string
		ok         bool
	}{
		{t.Context(), "test:count", `{"key":"a"}`, true},
		{t.Context(), "test:count", `{"key":"b","fail":true}`, false},
		{ctx, "test:count_idempotent", `{"key":"c","sleep_ms":60000}`, false},
		{t.Context(), "test:count", `{"key":"no key"}`, false}, // not run
	} {
		if ok, what := run(step.ctx, step.name, step.args); ok != step.ok {
			t.Errorf("%s: got %v %s", step.args, ok, what)
		}
	}
	b, err := os.ReadFile(filepath.Join(dir, File))
	if want := "a c1 n1\nb c1 n1\nc c1 n1\n"; err != nil || string(b) != want {
		t.Fatalf("got %q %v, want %q", b, err, want)
	}
}

func TestBigIsAsBigAsItWasToldTo(t *testing.T) {
	_, run := bench(t)
	if ok, data := run(t.Context(), "test:big", `{"bytes":1000}`); !ok ||
		len(strings.ReplaceAll(data, `\n`, "\n")) != 1002 {
		t.Fatalf("got %v, %d bytes", ok, len(data))
	}
}

func TestPanicPanics(t *testing.T) {
	_, run := bench(t)
	defer func() {
		if recover() == nil {
			t.Error("it did not")
		}
	}()
	run(t.Context(), "test:panic", `{}`)
}

func TestSleep(t *testing.T) {
	_, run := bench(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if ok, _ := run(t.Context(), "test:sleep", `{"ms":1}`); !ok {
		t.Error("test:sleep failed")
	}
	if ok, _ := run(ctx, "test:sleep", `{"ms":60000}`); ok {
		t.Error("test:sleep did not heed its context")
	}
	if ok, _ := run(ctx, "test:ignore_cancel", `{"ms":1}`); !ok {
		t.Error("test:ignore_cancel heeded its context")
	}
}
