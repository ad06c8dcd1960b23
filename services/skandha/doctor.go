package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/telemetry"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/buildinfo"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/executor"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/store/open"
	"skandha.dev/services/provider"
	"skandha.dev/services/skandha/system"
	"skandha.dev/services/toolrunner"
)

// doctorCmd checks what is installed, configured and running.
type doctorCmd struct{}

type finding struct {
	ok     bool
	need   bool // nothing works without it
	what   string
	advice string
}

// Run implements the command.
func (doctorCmd) Run(ctx context.Context, g *globals) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	s := stylesFor(os.Stdout)
	fmt.Printf("Skandha %s, %s, %s/%s, %d CPUs\n\n", buildinfo.String(), runtime.Version(), runtime.GOOS, runtime.GOARCH,
		runtime.NumCPU())
	bad := false
	for _, f := range g.findings(ctx) {
		mark := s.green + "ok  " + s.off
		switch {
		case !f.ok && f.need:
			mark, bad = s.red+"FAIL"+s.off, true
		case !f.ok:
			mark = s.yellow + "–   " + s.off
		}
		fmt.Printf("%s  %s\n", mark, f.what)
		if f.advice != "" {
			fmt.Printf("      %s%s%s\n", s.dim, f.advice, s.off)
		}
	}
	if bad {
		return exitFailed
	}
	return nil
}

func (g *globals) findings(ctx context.Context) []finding {
	out := []finding{goFinding(runtime.Version()), g.dataFinding(), g.configFinding(), g.busFinding(ctx)}
	if g.running() {
		out = append(out, g.systemFindings(ctx)...)
	} else {
		out = append(out, g.providerFinding(ctx), g.storeFinding(ctx))
		out = append(out, g.configuredWeb(ctx)...)
	}
	out = append(out, g.embedderFinding(ctx))
	out = append(append(out, g.voiceFindings(ctx)...), g.uiFinding(ctx))
	if g.NATS == "" { // otherwise the sandbox is on the machines of that system's tool runners
		out = append(out, g.sandboxFindings(ctx)...)
	}
	return append(out,
		installed("redis-server", "Redis for a deployed system",
			"apt-get install redis-server, or use the docker-compose file"),
		installed("ffmpeg", "ffmpeg for cameras and microphones", "apt-get install ffmpeg"),
		docker(), installed("docker-compose", "docker-compose for containers", "apt-get install docker-compose"),
		installed("python3", "Python for plugins in Python", "apt-get install python3"))
}

// running reports whether a system runs that can be asked.
func (g *globals) running() bool {
	if g.NATS != "" {
		return true
	}
	_, err := system.Running(g.Data)
	return err == nil
}

func (g *globals) dataFinding() finding {
	f := finding{need: true, what: "data directory " + g.Data}
	at, err := existing(g.Data)
	if err == nil {
		err = writable(at)
	}
	if err != nil {
		f.advice = err.Error() + "; choose another with --data DIR"
		return f
	}
	f.ok = true
	if at != g.Data {
		f.advice = "created at the first start"
	} else if r, err := system.Running(g.Data); err == nil {
		f.advice = fmt.Sprintf("process %d runs a system here, at %s", r.PID, r.URL)
	}
	return f
}

// existing returns the directory, or its nearest parent that exists.
func existing(dir string) (string, error) {
	for {
		_, err := os.Stat(dir)
		if !errors.Is(err, fs.ErrNotExist) || dir == filepath.Dir(dir) {
			return dir, err
		}
		dir = filepath.Dir(dir)
	}
}

// writable returns an error if files cannot be created in a directory; it creates none.
func writable(dir string) error {
	info, err := os.Stat(dir)
	switch {
	case err != nil:
		return err
	case !info.IsDir():
		return fmt.Errorf("%s is not a directory", dir)
	}
	if err := unix.Access(dir, unix.W_OK|unix.X_OK); err != nil {
		return fmt.Errorf("writing to %s: %w", dir, err)
	}
	return nil
}

func (g *globals) configFinding() finding {
	if g.Config == "" && g.running() {
		return finding{ok: true, what: "configuration: that of the running system"}
	}
	f := finding{need: true, what: "configuration: the defaults"}
	if g.Config != "" {
		f.what = "configuration " + g.Config
	}
	if err := system.CheckConfig(g.Config, g.UI != "off"); err != nil {
		f.advice = err.Error()
		return f
	}
	f.ok = true
	return f
}

func (g *globals) busFinding(ctx context.Context) finding {
	if g.NATS == "" {
		return finding{
			ok: true, what: "bus: embedded NATS", advice: "use --nats URL (or SKANDHA_NATS) for a bus that runs elsewhere",
		}
	}
	f := finding{need: true, what: "bus " + telemetry.Redact(g.NATS)}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	b, err := journal.Connect(ctx,
		bus.Config{URL: g.NATS, Token: g.Token, CredsFile: g.Creds, Name: "doctor", Logger: g.logger()})
	if err != nil {
		f.advice = err.Error()
		return f
	}
	defer b.Close()
	if _, err := b.JetStream().AccountInfo(ctx); err != nil {
		f.advice = "JetStream: " + err.Error() + "; start the server with JetStream enabled"
		return f
	}
	f.ok, f.advice = true, "server "+b.Conn().ConnectedServerVersion()
	return f
}

// systemFindings returns what the running system reports about itself.
func (g *globals) systemFindings(ctx context.Context) (out []finding) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	var st coreapi.Status
	if err := ask(ctx, g, coreapi.VerbStatus, nil, &st); err != nil {
		return []finding{{need: true, what: "core does not answer", advice: err.Error()}}
	}
	out = faultFindings(st)
	if len(out) == 0 {
		out = append(out, finding{ok: true, what: "core " + string(st.Instance) + ": no faults"})
	}
	out = append(out, modelFindings(st.Executors)...)
	if g.NATS != "" { // otherwise this machine's sandbox is described
		out = append(out, sandboxFinding(st.Executors))
	}
	out = append(out, finding{
		ok: st.View.State != coreapi.ViewUnavailable && st.View.Failed == 0, what: "view: " + viewLine(st.View),
		advice: "lists and statistics; sessions are in the log",
	})
	if len(st.Agents) > 0 {
		out = append(out, g.runnerFindings(ctx, st.Agents[0])...)
	}
	return out
}

// modelFindings lists the models that providers have announced. If there is none, the
// agent's fault reports it.
func modelFindings(executors []executor.Announcement) []finding {
	var models []string
	for _, e := range executors {
		for _, p := range e.Providers {
			if name := strings.TrimSpace(p.Name + " " + p.Model); !slices.Contains(models, name) {
				models = append(models, name)
			}
		}
	}
	if len(models) == 0 {
		return nil
	}
	return []finding{{ok: true, what: "provider: " + strings.Join(models, ", ")}}
}

// sandboxFinding lists the sandbox services that have announced themselves.
func sandboxFinding(executors []executor.Announcement) finding {
	var names []string
	for _, e := range executors {
		if slices.ContainsFunc(e.Tools, func(t tool.Spec) bool { return t.Name == "python:execute" }) {
			names = append(names, string(e.Instance))
		}
	}
	if len(names) == 0 {
		return finding{
			what:   "sandbox: no service has announced itself",
			advice: "python:execute and shell:execute are not offered; start skandha-sandbox",
		}
	}
	return finding{ok: true, what: "sandbox: " + strings.Join(names, ", ")}
}

// faultFindings returns the faults that the system reports.
func faultFindings(st coreapi.Status) (out []finding) {
	for _, f := range st.Faults {
		need := f.What == coreapi.FaultBus || f.What == coreapi.FaultProvider
		out = append(out, finding{need: need, what: f.What + " fault" + since(f.Since), advice: f.Message})
	}
	if len(st.Troubles) > 0 {
		var b strings.Builder
		printTroubles(&b, st.Troubles)
		out = append(out, finding{
			need: true, what: fmt.Sprintf("log: sessions that need an operator: %d", len(st.Troubles)),
			advice: strings.TrimSpace(b.String()) + "; see skandha sessions repair",
		})
	}
	for _, t := range st.Guides {
		what, effect := guideTrouble(t)
		out = append(out, finding{
			need: t.Required && !t.Stale, what: what,
			advice: effect + "; fix the guide's file, or start the plugin that declares it",
		})
	}
	return out
}

// runnerFindings has core call a tool of a tool runner.
func (g *globals) runnerFindings(ctx context.Context, agent subject.Agent) []finding {
	var r tool.Result
	var st toolrunner.Status
	err := ask(ctx, g, coreapi.VerbCall+".doctor",
		tool.InternalCall{Agent: agent, Session: "doctor", Caller: "doctor", Tool: "status:query"}, &r)
	switch {
	case err == nil && r.Error != nil:
		err = r.Error
	case err == nil:
		err = json.Unmarshal(r.Data, &st)
	}
	if err != nil {
		return []finding{{what: "tool runner: status:query failed", advice: err.Error()}}
	}
	return append([]finding{{
		ok: true,
		what: fmt.Sprintf("tool runner %s: %s, %d of %d slots busy", st.Instance, count(len(st.Tools), "tool"), st.Running,
			st.Slots),
	}}, offeredWeb(st.Tools)...)
}

func (g *globals) storeFinding(ctx context.Context) finding {
	where := os.Getenv("SKANDHA_STORE")
	if where == "" {
		return finding{
			ok: true, what: "view: SQLite in the data directory", advice: "set SKANDHA_STORE=redis://… to keep it in Redis",
		}
	}
	f := finding{need: true, what: "view in " + telemetry.Redact(where)}
	st, err := open.Store(ctx, where, g.logger())
	if err == nil {
		err = st.Ping(ctx)
		_ = st.Close() // opened only to check it
	}
	if err != nil {
		f.advice = err.Error()
		return f
	}
	f.ok = true
	return f
}

func installed(name, what, advice string) finding {
	path, err := exec.LookPath(name)
	if err != nil {
		return finding{what: what + ": not found", advice: advice}
	}
	return finding{ok: true, what: what + ": " + path}
}

func docker() finding {
	f := finding{
		what: "Docker engine: not reachable", advice: "only needed for containers; install docker.io and start dockerd",
	}
	var d net.Dialer
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	c, err := d.DialContext(ctx, "unix", "/var/run/docker.sock")
	if err != nil {
		return f
	}
	_ = c.Close()
	return finding{ok: true, what: "Docker engine: reachable"}
}

// providerFinding reports which provider an embedded system would use, and why.
func (g *globals) providerFinding(ctx context.Context) finding {
	f := finding{need: true, what: "provider"}
	adapters, why, err := provider.Select(ctx, provider.Config{
		Provider: g.Provider, Model: g.Model, BaseURL: g.BaseURL, OfflineRules: g.OfflineRules,
	}, os.Getenv)
	if err != nil {
		f.advice = err.Error()
		return f
	}
	f.ok, f.advice = true, why
	for i, a := range adapters {
		info := a.Info()
		f.what += map[bool]string{true: ": ", false: ", then "}[i == 0] + info.Name + " " + info.Model
	}
	return f
}
