package toolrunner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"time"

	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/effect"
	contract "skandha.dev/services/internal/executor"
	"skandha.dev/services/internal/executor/engine"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/mail"
	"skandha.dev/services/internal/plugincall"
	"skandha.dev/services/internal/result"
	"skandha.dev/services/internal/toolschema"
	"skandha.dev/services/toolrunner/mcp"
	"skandha.dev/services/toolrunner/tools"
	"skandha.dev/services/toolrunner/tools/agentsmd"
	"skandha.dev/services/toolrunner/tools/calc"
	"skandha.dev/services/toolrunner/tools/camera"
	"skandha.dev/services/toolrunner/tools/clock"
	"skandha.dev/services/toolrunner/tools/diag"
	"skandha.dev/services/toolrunner/tools/email"
	"skandha.dev/services/toolrunner/tools/filesystem"
	"skandha.dev/services/toolrunner/tools/mqtt"
	"skandha.dev/services/toolrunner/tools/notes"
)

// service is the service's name in announcements and logs.
const service = "toolrunner"

// Deps are a runner's dependencies.
type Deps struct {
	Bus    *journal.Journal // its instance id is the runner's
	Logger *slog.Logger
	// Extra tools are offered beside the built-in ones, regardless of Config.Enable.
	Extra []tools.Tool
	// Plugins is the registry, if the process already follows it; default: the
	// runner follows it itself.
	Plugins plugincall.Plugins
}

// Run offers the tools until ctx ends, and then drains. It returns nil if it ended
// because ctx did.
func Run(ctx context.Context, cfg Config, deps Deps) error {
	if err := cfg.Validate(); err != nil {
		return fmt.Errorf("toolrunner: %w", err)
	}
	cfg = cfg.withDefaults()
	if deps.Logger == nil {
		deps.Logger = slog.Default()
	}
	if err := os.MkdirAll(cfg.WorkspaceDir, 0o700); err != nil {
		return fmt.Errorf("creating workspace_dir: %w", err)
	}
	if err := cfg.CheckWorkspace(); err != nil {
		return fmt.Errorf("toolrunner: %w", err)
	}
	root, err := os.OpenRoot(cfg.WorkspaceDir)
	if err != nil {
		return fmt.Errorf("opening workspace_dir: %w", err)
	}
	defer func() { _ = root.Close() }()
	r, err := newRunner(cfg, deps, root)
	if err != nil {
		return fmt.Errorf("toolrunner: %w", err)
	}
	defer r.email.Close()
	defer r.cameras.Close()
	r.offers = newOffering(r.specs())
	stop := r.followWorkspace(ctx, root, deps.Logger)
	defer stop()
	r.mcp = r.clients(deps)
	defer r.mcp.Close()
	ec := engine.Config{
		Kind: subject.Runner, Service: service, Offer: r.offers.now(), Work: r.work,
		Updates:      r.offers.out.Updates(),
		Pools:        []contract.Pool{{Name: contract.DefaultPool, Slots: cfg.Slots}},
		DrainTimeout: cfg.DrainTimeout, Logger: deps.Logger,
	}
	if !cfg.NoPlugins {
		leave, err := r.follow(deps)
		if err != nil {
			return fmt.Errorf("toolrunner: %w", err)
		}
		defer leave()
	}
	r.mcp.Follow(ctx, r.servers, r.cfg.MCPFile)
	return engine.Serve(ctx, deps.Bus, ec)
}

// follow offers the plugins' tools from now on.
func (r *runner) follow(deps Deps) (leave func(), err error) {
	r.remote = newRemotes(r.cfg, slices.Concat(r.specs(), r.skills.specs("")), int(deps.Bus.MaxPayload()/2), r.mcp, r.offers, deps.Logger)
	r.plugins, leave, err = plugincall.Follow(
		deps.Bus, deps.Plugins, r.remote.refresh, deps.Logger, plugincall.Grace(r.cfg.PluginGrace))
	return leave, err
}

// runner runs the tools of one instance.
type runner struct {
	cfg     Config
	offers  *offering
	skills  *skillTools
	servers mcp.Config
	reads   map[string]offered // of the servers' resources and prompts
	mcp     *mcp.Group
	remote  *remotes          // nil without plugins
	plugins *plugincall.Asker // likewise
	bus     *journal.Journal
	store   result.Store
	marks   *effect.Marks
	email   *email.Group
	cameras *camera.Looker
	tools   map[string]offered
	names   []string // sorted
	started time.Time
	running atomic.Int64
}

type offered struct {
	tools.Tool
	args *toolschema.Validator
}

func newRunner(cfg Config, deps Deps, root *os.Root) (*runner, error) {
	r := &runner{cfg: cfg, bus: deps.Bus, store: deps.Bus, marks: effect.New(deps.Bus), tools: map[string]offered{}, reads: map[string]offered{}, started: time.Now()}
	accounts, err := mail.ReadAccounts(cfg.File)
	if err != nil {
		return nil, err
	}
	if r.servers, err = mcp.ReadConfig(cfg.File); err != nil {
		return nil, err
	}
	r.email = email.New(accounts, deps.Bus, cfg.StateDir, deps.Logger)
	if r.cameras, err = camera.New(deps.Bus); err != nil {
		return nil, err
	}
	list, err := r.builtin(deps, root)
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, t := range append(list, deps.Extra...) {
		errs = append(errs, r.offer(t))
	}
	slices.Sort(r.names)
	r.skills, err = newSkillTools(cfg, root)
	return r, errors.Join(append(errs, err)...)
}

// builtin returns the built-in tools that Config enables.
func (r *runner) builtin(deps Deps, root *os.Root) ([]tools.Tool, error) {
	files := filesystem.Tools(root, r.cfg.Files, r.cfg.protected()...)
	if r.cfg.instructs() {
		near := agentsmd.NewGiver(root, r.cfg.protected()...)
		for i := range files {
			files[i] = near.With(files[i])
		}
	}
	list := slices.Concat(files, notes.Tools(r.book(root)), []tools.Tool{
		clock.Now(), calc.Evaluate(), diag.Record(deps.Logger), diag.Status(r.status), r.cameras.Tool(),
		mcp.Query(func() *mcp.Group { return r.mcp }),
	})
	list = append(list, r.email.Tools()...)
	requests, err := r.cfg.HTTP.Tools()
	if err != nil {
		return nil, err
	}
	pages, err := r.cfg.Web.Tools()
	if err != nil {
		return nil, err
	}
	list = slices.Concat(list, requests, pages, mqtt.Tools(r.cfg.MQTT))
	list = slices.DeleteFunc(list, func(t tools.Tool) bool { return !r.cfg.wants(t.Spec.Name) })
	return list, nil
}

// offer compiles the tool's schema and adds the tool. The announced schema is always an
// object schema, even if the tool's spec is less specific.
func (r *runner) offer(t tools.Tool) error {
	if _, dup := r.tools[t.Spec.Name]; dup {
		return fmt.Errorf("duplicate tool %q", t.Spec.Name)
	}
	v, err := toolschema.Compile(t.Spec)
	if err != nil {
		return err
	}
	t.Spec.Args, t.Spec.Probe = v.Schema(), t.Probe != nil
	r.tools[t.Spec.Name] = offered{t, v}
	r.names = append(r.names, t.Spec.Name)
	return nil
}

func (r *runner) specs() []tool.Spec {
	out := make([]tool.Spec, 0, len(r.names))
	for _, n := range r.names {
		out = append(out, r.tools[n].Spec)
	}
	return out
}

// work carries out one attempt.
func (r *runner) work(ctx context.Context, req contract.Request, progress func(string)) contract.Answer {
	r.running.Add(1)
	defer r.running.Add(-1)
	ref := subject.Ref{Agent: req.Agent, Session: req.Session}
	shown := r.bus.Lines(ref, req.Tool.Turn, "skandha/toolrunner/"+string(r.bus.Instance()), tool.Output{Call: req.Call, Attempt: req.Attempt})
	both := func(line string) {
		progress(line)
		if req.Tool.Turn != "" { // of an internal call nothing is shown
			shown(line)
		}
	}
	c := tools.Call{
		Agent: req.Agent, Session: req.Session, Turn: req.Tool.Turn, ID: req.Call, Attempt: req.Attempt,
		Args: req.Tool.Args, Store: r.store, Progress: both, Key: cmp.Or(req.Tool.Key, req.Call),
		After: req.Tool.After,
	}
	if t, own := r.tools[req.Tool.Name]; own {
		return answer(r.run(ctx, c, t, req.Tool.Probe))
	}
	if t, own := r.skills.tools[req.Tool.Name]; own {
		return answer(r.run(ctx, c, t, nil))
	}
	if t, own := r.reads[req.Tool.Name]; own {
		return answer(r.run(ctx, c, t, nil))
	}
	if t := r.mcp.Get(req.Tool.Name); t != nil {
		if was := req.Tool.Spec; was != "" && was != t.Spec.Digest() {
			return engine.DidNotRun(fmt.Sprintf("%s is now another tool of the MCP server %s", req.Tool.Name, t.Server()))
		}
		return r.callServer(ctx, c, t)
	}
	if t := r.remote.get(req.Tool.Name); t != nil {
		if was := req.Tool.Spec; was != "" && was != t.spec.Digest() {
			return engine.DidNotRun(fmt.Sprintf("%s is now another tool, of the plugin %s", req.Tool.Name, t.plugin))
		}
		return r.callPlugin(ctx, c, t, req.Tool.Probe)
	}
	// it was offered when the call arrived
	return engine.DidNotRun(fmt.Sprintf("the plugin or MCP server that offered %s has left", req.Tool.Name))
}

// run runs a tool of this process, or probes it.
func (r *runner) run(ctx context.Context, c tools.Call, t offered, probe *tool.Probe) tool.Result {
	args, errs := t.args.Validate(c.Args)
	if errs != nil {
		return r.limit(ctx, c, misfit(errs))
	}
	c.Args = args
	if t.Probe == nil {
		return r.limit(ctx, c, t.Run(ctx, c))
	}
	if probe != nil {
		return r.limit(ctx, c, r.marks.Probe(ctx, effect.Key(c.Key, c.ID), func(began effect.Record) tool.Result {
			return t.Probe(ctx, c, tools.Begun{At: began.At, Until: probe.NotAfter, Attempt: began.Attempt})
		}))
	}
	return r.marks.Run(ctx, effect.Key(c.Key, c.ID), c.Attempt, func(begin func(context.Context) error) tool.Result {
		c.Begin = begin
		return r.limit(ctx, c, t.Run(ctx, c))
	})
}

// Status is the answer of status:query.
type Status struct {
	Instance subject.Instance `json:"instance"`
	Version  string           `json:"version"`
	Started  time.Time        `json:"started"`
	UptimeMS int64            `json:"uptime_ms"`
	Slots    int              `json:"slots"`
	Running  int64            `json:"running"` // calls, this one included
	Tools    []string         `json:"tools"`
}

func (r *runner) status() any {
	return Status{
		Instance: r.bus.Instance(), Version: Version(), Started: r.started.UTC(),
		UptimeMS: time.Since(r.started).Milliseconds(),
		Slots:    r.cfg.Slots, Running: r.running.Load(),
		Tools: slices.Sorted(slices.Values(slices.Concat(r.names, r.mcp.Names(), r.remote.names()))),
	}
}

// Version is the version of the running binary: of its module or, if that is
// unknown, of the commit that it was built from.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value
		}
	}
	return "devel"
}
