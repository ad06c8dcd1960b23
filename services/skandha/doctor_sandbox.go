package main

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"skandha.dev/services/sandbox/driver"
)

// sandboxFindings reports where code of models would run here, how strong the isolation
// is, and which limits it cannot enforce.
func (g *globals) sandboxFindings(ctx context.Context) []finding {
	if g.NoSandbox {
		return []finding{{ok: true, what: "sandbox: off", advice: "remove --no-sandbox to let models run isolated code"}}
	}
	d, _, err := g.Sandbox.Make("doctor", slog.New(slog.DiscardHandler))
	if err != nil {
		return []finding{{need: true, what: "sandbox", advice: err.Error()}}
	}
	defer func() { _ = d.Close() }() // nothing that lasts was started
	r, err := d.Report(ctx)
	if err != nil {
		return []finding{{what: "sandbox: none; python:execute and shell:execute return an error", advice: err.Error()}}
	}
	out := describeSandbox(r, g.Sandbox.Limits())
	for _, why := range d.Passed() { // such as an engine without the image
		out = append(out, finding{what: "better sandbox not used", advice: why})
	}
	return out
}

func describeSandbox(r driver.Report, l driver.Limits) []finding {
	isolation := strings.TrimSuffix(r.Isolation, ".")
	if r.Untrusted {
		isolation += "; strong enough for tenants that do not trust each other"
	}
	out := []finding{
		{ok: true, what: fmt.Sprintf("sandbox: %s (%s), Python %s", r.Driver, r.Version, r.Python), advice: isolation},
		{ok: true, what: "sandbox limits: " + strings.Join(r.Enforced, ", "), advice: fmt.Sprintf(
			"each sandbox has %d MiB of memory, %g CPUs, %d processes, %d MiB for files", l.Memory>>20, l.CPUs, l.PIDs,
			l.Workspace>>20)},
	}
	for _, m := range r.Missing {
		out = append(out, finding{what: "sandbox does not enforce " + m})
	}
	return out
}
