package core

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"skandha.dev/pkg/guide"
	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/core/decide"
	"skandha.dev/services/core/directory"
	"skandha.dev/services/core/guidefile"
	"skandha.dev/services/core/outbox"
	"skandha.dev/services/core/planner/engine"
	"skandha.dev/services/core/plugins"
	"skandha.dev/services/core/security"
	"skandha.dev/services/core/shell"
	"skandha.dev/services/internal/configfile"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/people"
)

// DefaultAgent is the agent that exists when none is configured.
const DefaultAgent = "main"

// Config is the core's part of the configuration file (YAML).
type Config struct {
	Agents map[string]AgentConfig `yaml:"agents"`
	Policy []Rule                 `yaml:"policy"`
	// People names the people who use the system. Their rights and logins belong to the UI bridge.
	People people.Config `yaml:"people"`
	// Approvals says who approves calls for which an approval is required.
	Approvals security.ApprovalsConfig `yaml:"approvals"`
	// Hooks configures how plugins are asked, by hook point.
	Hooks   map[hook.Point]HookConfig `yaml:"hooks"`
	Plugins PluginsConfig             `yaml:"plugins"`
	// OpenSessions limits how many sessions a core has open at once; inputs of further
	// sessions wait in the log. Default 2000.
	OpenSessions int           `yaml:"open_sessions"`
	Streams      StreamsConfig `yaml:"streams"`
	// Retention says what leaves the log, and where it goes.
	Retention RetentionConfig `yaml:"retention"`
	// Limits of the whole system, in addition to those of each agent's turns.
	Limits SystemLimits `yaml:"limits"`
	// GuidesDir is the directory with guides as Markdown files, relative to this file. Default:
	// guides, beside this file; without a file, guides in the data directory.
	GuidesDir string `yaml:"guides_dir"`
	// Notify is who is notified when a call waits for approval, a turn fails or a limit is reached.
	Notify outbox.Notify `yaml:"notify"`
	// Audit is where the end of the audit log is published.
	Audit AuditConfig `yaml:"audit"`
	// Listeners belongs to the listener service, which reads and checks it.
	Listeners yaml.Node `yaml:"listeners"`
	// MQTT names the brokers of the listener service and the tool runner, likewise.
	MQTT yaml.Node `yaml:"mqtt"`
	// Email belongs to the tool runner and the listener service, likewise.
	Email yaml.Node `yaml:"email"`
	// MCP belongs to the tool runner, likewise.
	MCP yaml.Node `yaml:"mcp"`
	// Providers belongs to the provider service, likewise.
	Providers yaml.Node `yaml:"providers"`
	// UI belongs to the UI bridge, likewise.
	UI yaml.Node `yaml:"ui"`
}

// HookConfig overrides the settings that manifests declare.
type HookConfig struct {
	Mode    hook.Mode        `yaml:"mode"`     // chain or parallel
	OnError hook.OnErrorRule `yaml:"on_error"` // allow or deny
	Budget  time.Duration    `yaml:"budget"`   // for all plugins together; default 10s
	// Required lists plugins without which everything at this point is denied. At
	// before_act they are the judges: each must agree to every call, with its final
	// arguments.
	Required []string `yaml:"required"`
}

// AuditConfig configures the audit log. How much of it is kept is a matter of streams.
type AuditConfig struct {
	Head AuditHead `yaml:"head"`
}

// AuditHead is where the digest of the last entry is published, so that a log that was rewritten as a whole is noticed.
type AuditHead struct {
	File     string        `yaml:"file"`     // a line is appended to it for each head; keep it where the bus is not
	Webhook  string        `yaml:"webhook"`  // URL to which each head is sent
	Secret   string        `yaml:"secret"`   // env:NAME, file:PATH or whsec_…; requests to the webhook are signed with it
	Interval time.Duration `yaml:"interval"` // the shortest time between two heads; default 5m
}

// PluginsConfig configures the registration of plugins.
type PluginsConfig struct {
	Lease        time.Duration `yaml:"lease"`         // how long a plugin may be silent; default 10s
	SuspendAfter *int          `yaml:"suspend_after"` // failures in a row; default 5; 0: never
}

// StreamsConfig configures the log and the streams that belong to it. A missing field
// keeps the existing value; for new streams it means the default. See [journal.StreamsConfig].
type StreamsConfig struct {
	Replicas         int           `yaml:"replicas"`           // copies of each stream: 1, 3 or 5; never lowered
	MaxBytes         int64         `yaml:"max_bytes"`          // of the log; -1: no limit
	MaxDeadBytes     int64         `yaml:"max_dead_bytes"`     // of the dead letters
	MaxClaimBytes    int64         `yaml:"max_claim_bytes"`    // of bodies in transit
	MaxArtifactBytes int64         `yaml:"max_artifact_bytes"` // of all artifacts
	MaxFilesBytes    int64         `yaml:"max_files_bytes"`    // of the copies of all workspaces of sandboxes
	MaxMemoryBytes   int64         `yaml:"max_memory_bytes"`   // of all memories
	DeadAge          time.Duration `yaml:"dead_age"`           // how long a dead letter is kept
	ClaimAge         time.Duration `yaml:"claim_age"`          // how long a body in transit is kept
	MaxAuditBytes    int64         `yaml:"max_audit_bytes"`    // of the audit log; a full one drops its oldest entries
	AuditAge         time.Duration `yaml:"audit_age"`          // how long an audit entry is kept; 0: until the log is full

	MaxSessionArtifactBytes int64          `yaml:"max_session_artifact_bytes"` // of one session's artifacts; -1: no limit
	MaxAgentArtifactBytes   int64          `yaml:"max_agent_artifact_bytes"`   // of one agent's artifacts; -1: no limit
	ArtifactAge             *time.Duration `yaml:"artifact_age"`               // how long files are kept; 0: forever
}

// AgentConfig describes one agent.
type AgentConfig struct {
	Guide GuideConfig `yaml:"guide"`
	// Guides lists guides by name: of files in guides_dir, built-in ones and those of plugins.
	// They are appended to guide in this order.
	Guides   []string `yaml:"guides"`
	Required []string `yaml:"required_guides"` // a subset of guides; while one is missing, the agent does not answer
	// Provider names the provider of a service or plugin, with or without a model: openai,
	// or openai/gpt-5. A list names several: when one fails, the next is asked. Absent: the
	// first of any free service.
	Provider Providers `yaml:"provider"`
	Model    string    `yaml:"model"` // of the first provider; empty: its default
	Tools    []string  `yaml:"tools"` // names, or beginnings of names that end in *; absent: every public tool
	// Decision is how tools are chosen. native: the model calls them itself. engine: core
	// chooses the tool and its arguments, and the model fills what is open. Default native. A
	// guide of guides that sets it takes precedence.
	Decision guide.Decision `yaml:"decision"`
	// Shortlist is how many tools the model is shown at most; it finds others with tools:find.
	// Default 40; 0: no limit.
	Shortlist *int `yaml:"shortlist"`
	// Confidence is how certain the engine must be of its choice, above 0 and up to 1.
	// Default 0.7.
	Confidence *float64 `yaml:"confidence"`
	// Permissions lists the permissions granted to tools, e.g. mail.send, or fs.* for a
	// group. Absent: [security.DefaultPermissions]; empty: none.
	Permissions []string      `yaml:"permissions"`
	Confirm     time.Duration `yaml:"confirm"` // how long a person may take to answer; default 15m
	Limits      LimitsConfig  `yaml:"limits"`
	// Description says in a line what the agent is for, to agents that may give it tasks.
	Description string `yaml:"description"`
	// Team is which agents work for this one, in separate sessions. Absent: none.
	Team *TeamConfig `yaml:"team"`
}

// TeamConfig configures which agents an agent may give tasks to.
type TeamConfig struct {
	Agents   []string `yaml:"agents"`   // may be given tasks, the agent itself if it is listed; the first one by default
	Depth    *int     `yaml:"depth"`    // how many sessions may work below one another; default 1, at most 8
	Children *int     `yaml:"children"` // how many work for one session at once; default 8, at most 32
}

// GuideConfig configures the agent's persona.
type GuideConfig struct {
	SystemPrompt    string             `yaml:"system_prompt"`    // absent: the guide named default comes first
	Temperature     *float64           `yaml:"temperature"`      // absent: the model's default
	MemoryPolicy    guide.MemoryPolicy `yaml:"memory_policy"`    // sliding-window (default), summary, vector-db or none
	InitialMemories []string           `yaml:"initial_memories"` // always shown to the model
	Decision        guide.Decision     `yaml:"decision"`         // native (the default) or engine
	IgnoreAgentsMD  bool               `yaml:"ignore_agents_md"` // leave out the workspace's AGENTS.md
}

// SystemLimits bounds all sessions together.
type SystemLimits struct {
	// Backlog is how many inputs may wait before new ones are refused. Default 10000;
	// 0: no limit.
	Backlog *int `yaml:"backlog"`
	// PerListener is how many inputs of one invited listener may wait at a core before the bus takes
	// no more from it for a while. Default 256; 0: no limit.
	PerListener *int `yaml:"per_listener"`
}

// perListener converts the limit likewise, but 0 means no limit.
func (l SystemLimits) perListener() (int, error) {
	switch {
	case l.PerListener == nil:
		return shell.DefaultPerListener, nil
	case *l.PerListener < 0:
		return 0, fmt.Errorf("limits.per_listener is %d, want 0 (no limit) or more", *l.PerListener)
	}
	return *l.PerListener, nil
}

// backlog converts the limit to the shell's form, in which -1 means no limit.
func (l SystemLimits) backlog() (int, error) {
	switch {
	case l.Backlog == nil:
		return shell.DefaultBacklog, nil
	case *l.Backlog < 0:
		return 0, fmt.Errorf("limits.backlog is %d, want 0 (no limit) or more", *l.Backlog)
	case *l.Backlog == 0:
		return -1, nil
	}
	return *l.Backlog, nil
}

// LimitsConfig bounds a turn. An absent field means the default, 0 no limit.
type LimitsConfig struct {
	Rounds         *int           `yaml:"rounds"`           // model calls per turn; default 25
	Calls          *int           `yaml:"calls"`            // tool calls per model answer; default 32
	Tokens         *int64         `yaml:"tokens"`           // input and output tokens per turn; default 500000
	CostUSD        *float64       `yaml:"cost_usd"`         // per turn; default no limit
	SessionCostUSD *float64       `yaml:"session_cost_usd"` // per session; default no limit
	Wall           *time.Duration `yaml:"wall"`             // per turn, not counting the time that people take; default 10m
	ModelCall      *time.Duration `yaml:"model_call"`       // one model call; default 2m
	Queue          *int           `yaml:"queue"`            // inputs of a session that may wait; default 256
	WindowTurns    *int           `yaml:"window_turns"`     // latest turns that the model sees; default 20
	// estimated tokens of the conversation above which the memory policy summary summarises; default 24000
	WindowTokens *int `yaml:"window_tokens"`
	// turns of all sessions that run at once at one core; inputs of others wait; default no limit
	Turns *int `yaml:"turns"`
	// inputs that the agent takes up per minute at one core; others wait; default no limit
	InputsPerMinute *int `yaml:"inputs_per_minute"`
	// the same for each session; default no limit
	SessionInputsPerMinute *int `yaml:"session_inputs_per_minute"`
}

// Rule is one rule of the policy; the last one that matches wins.
type Rule = security.Rule

// ReadConfig reads and checks the configuration file. With an empty path it returns the
// defaults. The error lists all mistakes, with their lines.
func ReadConfig(path string) (Config, error) {
	beside := filepath.Join(filepath.Dir(path), "guides")
	return configfile.Read(path, func(file []byte) (c Config, err error) {
		err = configfile.Decode(file, &c)
		if c.GuidesDir = cmp.Or(c.GuidesDir, beside); !filepath.IsAbs(c.GuidesDir) && c.GuidesDir != beside {
			c.GuidesDir = filepath.Join(filepath.Dir(path), c.GuidesDir)
		}
		return c, err
	}, func(c Config) error {
		if info, err := os.Stat(c.GuidesDir); c.GuidesDir != beside && (err != nil || !info.IsDir()) {
			return errors.Join(c.Check(), fmt.Errorf("guides_dir is %s, which is not a directory", c.GuidesDir))
		}
		return c.Check()
	})
}

// guides returns the guides in order. Without its own system prompt, the agent begins
// with the default one.
func (a AgentConfig) guides() (all []string, basis string) {
	if a.Guide.SystemPrompt != "" || slices.Contains(a.Guides, guidefile.Default) {
		return a.Guides, ""
	}
	return append([]string{guidefile.Default}, a.Guides...), guidefile.Default
}

// Build checks the configuration and returns the agents and the policy.
func (c Config) Build() (map[subject.Agent]*decide.Agent, *security.Policy, error) {
	if len(c.Agents) == 0 {
		c.Agents = map[string]AgentConfig{DefaultAgent: {}}
	}
	agents := make(map[subject.Agent]*decide.Agent, len(c.Agents))
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(c.Agents)) {
		agent, err := c.Agents[name].build(name)
		team, badTeam := c.team(name)
		agent.Team = team
		agents[agent.Name] = agent
		errs = append(errs, err, badTeam)
	}
	if c.OpenSessions < 0 {
		errs = append(errs, fmt.Errorf("open_sessions is %d, want 1 or more, or 0 for the default of %d",
			c.OpenSessions, directory.DefaultOpenSessions))
	}
	policy, err := security.New(c.Policy)
	return agents, policy, errors.Join(append(errs, err)...)
}

// BuildApprovals checks the people and the rules of approvals.
func (c Config) BuildApprovals() (*security.Approvals, error) {
	who, err := people.New(c.People)
	rules, badRules := security.NewApprovals(c.Approvals, who)
	return rules, errors.Join(err, badRules)
}

// BuildStreams checks the configuration of the streams.
func (c Config) BuildStreams() (journal.StreamsConfig, error) {
	out := journal.StreamsConfig(c.Streams)
	return out, out.Validate()
}

// BuildPlugins checks the configuration of hooks and plugins.
func (c Config) BuildPlugins() (plugins.Config, error) {
	out := plugins.Config{
		Lease: c.Plugins.Lease, GuidesDir: c.GuidesDir, Points: map[hook.Point]plugins.PointConfig{}, Listeners: c.listenerNames(),
	}
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if l := c.Plugins.Lease; l != 0 && (l < time.Second || l > time.Hour) {
		bad("plugins.lease is %v, want 1s to 1h", l)
	}
	if n := c.Plugins.SuspendAfter; n != nil {
		if out.SuspendAfter = *n; *n == 0 {
			out.SuspendAfter = -1
		}
		if *n < 0 {
			bad("plugins.suspend_after is %d, want 0 (never) or more", *n)
		}
	}
	for p, h := range c.Hooks {
		at := "hooks." + string(p)
		if !slices.Contains(hook.Points(), p) {
			bad("%s: unknown hook point, want one of %v", at, hook.Points())
			continue
		}
		if h.Mode != "" && h.Mode != hook.Chain && h.Mode != hook.Parallel {
			bad("%s.mode is %q, want chain or parallel", at, h.Mode)
		}
		if h.OnError != "" && h.OnError != hook.Allow && h.OnError != hook.Deny {
			bad("%s.on_error is %q, want allow or deny", at, h.OnError)
		}
		if (h.OnError == hook.Deny || len(h.Required) > 0) && !p.Deniable() {
			bad("%s: on_error: deny and required are not supported, because this point cannot deny", at)
		}
		if h.Budget < 0 || h.Budget > 10*time.Minute {
			bad("%s.budget is %v, want up to 10m", at, h.Budget)
		}
		pc := plugins.PointConfig{Mode: h.Mode, OnError: h.OnError, Budget: h.Budget}
		for i, name := range h.Required {
			id, err := subject.Parse[subject.Plugin](name)
			if err != nil {
				bad("%s.required[%d]: %w", at, i, err)
			}
			pc.Required = append(pc.Required, id)
		}
		out.Points[p] = pc
	}
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return out, errors.Join(errs...)
}

func (a AgentConfig) build(name string) (*decide.Agent, error) {
	id, err := subject.Parse[subject.Agent](name)
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("agents."+name+format, args...)) }
	if err != nil {
		bad(": %w", err)
	}
	g := guide.Guide{
		Name: name, SystemPrompt: a.Guide.SystemPrompt, Temperature: a.Guide.Temperature,
		MemoryPolicy: a.Guide.MemoryPolicy, InitialMemories: a.Guide.InitialMemories, Decision: cmp.Or(a.Guide.Decision, a.Decision),
		IgnoreAgentsMD: a.Guide.IgnoreAgentsMD,
	}
	checked := g
	checked.SystemPrompt = cmp.Or(g.SystemPrompt, guidefile.Default) // that guide has one
	if err := checked.Check(); err != nil {
		bad(".guide: %w", err)
	}
	granted := a.Permissions
	if granted == nil {
		granted = security.DefaultPermissions()
	}
	errs = append(errs, security.CheckPermissions("agents."+name+".permissions", granted))
	if a.Confirm < 0 {
		bad(".confirm is %s, want a positive duration such as 15m", a.Confirm)
	}
	for i, name := range a.Guides {
		if name == "" || slices.Contains(a.Guides[:i], name) {
			bad(".guides[%d] is %q, want the name of a guide, without duplicates", i, name)
		}
	}
	for i, name := range a.Required {
		if !slices.Contains(a.Guides, name) {
			bad(".required_guides[%d] is %q, want one of guides %q", i, name, a.Guides)
		}
	}
	limits := a.Limits.build(bad)
	providers, wrong := decide.ParseChoices(a.Provider, a.Model)
	for _, err := range wrong {
		bad(".%w", err)
	}
	shortlist, confidence := decide.DefaultShortlist, engine.DefaultConfidence
	set(&shortlist, a.Shortlist)
	set(&confidence, a.Confidence)
	if shortlist < 0 {
		bad(".shortlist is %d, want 0 (no limit) or more", shortlist)
	}
	if !(confidence > 0 && confidence <= 1) { // false for NaN
		bad(".confidence is %g, want more than 0 and at most 1", confidence)
	}
	guides, basis := a.guides()
	return &decide.Agent{
		Name: id, Guide: g, Guides: guides, Basis: basis, Required: a.Required, Providers: providers,
		Tools: a.Tools, Granted: [][]string{granted}, Limits: limits, Confirm: a.Confirm,
		Shortlist: shortlist, Confidence: confidence,
	}, errors.Join(errs...)
}

// Providers is a list of providers, in order of preference. In YAML it may also be a single
// one.
type Providers = guidefile.Providers

func (l LimitsConfig) build(bad func(format string, args ...any)) decide.Limits {
	out := decide.DefaultLimits()
	set(&out.Rounds, l.Rounds)
	set(&out.Calls, l.Calls)
	set(&out.Tokens, l.Tokens)
	set(&out.Wall, l.Wall)
	set(&out.ModelCall, l.ModelCall)
	set(&out.Queue, l.Queue)
	set(&out.WindowTurns, l.WindowTurns)
	set(&out.WindowTokens, l.WindowTokens)
	set(&out.Turns, l.Turns)
	set(&out.InputsPerMinute, l.InputsPerMinute)
	set(&out.SessionInputsPerMinute, l.SessionInputsPerMinute)
	var cost, session float64
	set(&cost, l.CostUSD)
	set(&session, l.SessionCostUSD)
	out.CostMicroUSD, out.SessionCostMicroUSD = int64(cost*1e6), int64(session*1e6)
	for _, f := range []struct {
		name     string
		value    any
		negative bool
	}{
		{"rounds", out.Rounds, out.Rounds < 0},
		{"calls", out.Calls, out.Calls < 0},
		{"tokens", out.Tokens, out.Tokens < 0},
		{"cost_usd", cost, !(cost >= 0 && cost <= maxCostUSD)}, // false for NaN
		{"session_cost_usd", session, !(session >= 0 && session <= maxCostUSD)},
		{"wall", out.Wall, out.Wall < 0},
		{"model_call", out.ModelCall, out.ModelCall < 0},
		{"queue", out.Queue, out.Queue < 0},
		{"window_turns", out.WindowTurns, out.WindowTurns < 0},
		{"turns", out.Turns, out.Turns < 0},
		{"inputs_per_minute", out.InputsPerMinute, out.InputsPerMinute < 0},
		{"session_inputs_per_minute", out.SessionInputsPerMinute, out.SessionInputsPerMinute < 0},
	} {
		if f.negative {
			bad(".limits.%s is %v, want 0 (no limit) or more", f.name, f.value)
		}
	}
	if n := out.WindowTokens; n < 1000 || n > decide.MaxWindowTokens {
		bad(".limits.window_tokens is %d, want 1000 to %d", n, decide.MaxWindowTokens)
	}
	return out
}

// maxCostUSD is the highest limit that millionths of a dollar can hold.
const maxCostUSD = 1e12

func set[T any](to *T, from *T) {
	if from != nil {
		*to = *from
	}
}
