package webtest

import (
	"context"
	"errors"
	"os"

	"skandha.dev/services/sandbox/driver"
	"skandha.dev/services/sandbox/selection"
	"skandha.dev/services/skandha/system"
)

// python is the tool by which it is known that sandboxes can be had.
const python = "python:execute"

// sandbox is one of bubblewrap; without it the test is skipped.
func (r *Rig) sandbox(ctx context.Context) *system.Sandbox {
	r.t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "skandha-webtest-") // reachable for the users of root's sandboxes
	if err == nil {
		r.t.Cleanup(func() { _ = os.RemoveAll(dir) })
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		r.t.Fatal(err)
	}
	flags := selection.Flags{Driver: selection.Bwrap, Dir: dir}
	d, _, err := flags.Make("webtest", r.log)
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = d.Close() }() // it has started nothing
	_, err = d.Report(ctx)
	switch {
	case errors.Is(err, driver.ErrUnavailable) && os.Getenv("SKANDHA_REQUIRE") != "all":
		r.t.Skipf("SKIPPED: %v", err)
	case err != nil:
		r.t.Fatal(err)
	}
	return &system.Sandbox{Flags: flags}
}

// awaitSandbox waits until a tool of the sandbox can be called.
func (r *Rig) awaitSandbox() {
	r.t.Helper()
	r.eventually("core knows "+python, func(context.Context) bool {
		_, known := r.System.Core().Directory().Lookup(python)
		return known
	})
}
