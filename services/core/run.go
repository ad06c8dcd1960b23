package core

import (
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"time"

	"skandha.dev/services/core/auditor"
	"skandha.dev/services/core/identities"
	"skandha.dev/services/core/shell"
	"skandha.dev/services/internal/audit"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/memory"
	"skandha.dev/services/internal/store"
)

// Options holds the settings of the process that are not in the configuration file.
type Options struct {
	Compare time.Duration // interval for comparing the view with the log; default 30 s
	Drain   time.Duration // grace period for open turns on shutdown; default 10 s
	Version string
	// Schedules offers agents the tools schedule:create, schedule:list and schedule:delete.
	Schedules bool
	Traces    bool          // make traces and metrics of turns
	Settle    time.Duration // how old a commit must be to leave the log; default 3m
	Cache     int           // states cached besides those of open sessions; default 1024
	Keys      Keys          // of a bus with rights, if Deps has no identities
}

// Deps holds the dependencies of a core.
type Deps struct {
	Bus   *journal.Journal
	Store store.Store
	Index memory.Store // of what agents remember; nil: they remember nothing beyond a session
	Log   *slog.Logger
	// Identities are who from outside may connect; nil: the bus enforces no rights.
	Identities *identities.Identities
}

// New prepares a core service.
func New(cfg Config, o Options, d Deps) (*shell.Core, error) {
	sc, err := cfg.shell()
	if err = errors.Join(err, cfg.Retention.missing()); err != nil {
		return nil, err
	}
	if sc.Identities = d.Identities; sc.Identities == nil {
		if sc.Identities, err = o.Keys.Identities(d); err != nil {
			return nil, err
		}
	}
	sc.Compare, sc.Drain, sc.Version, sc.Index = o.Compare, o.Drain, o.Version, d.Index
	sc.Schedules, sc.Traces, sc.Retention.Settle, sc.CacheSessions = o.Schedules, o.Traces, o.Settle, o.Cache
	return shell.New(sc, d.Bus, d.Store, d.Log)
}

// Check reports all errors; each begins with the path of the setting.
func (c Config) Check() error {
	_, err := c.shell()
	return err
}

func (c Config) shell() (shell.Config, error) {
	agents, policy, badAgents := c.Build()
	approvals, badApprovals := c.BuildApprovals()
	plugins, badPlugins := c.BuildPlugins()
	streams, badStreams := c.BuildStreams()
	backlog, badBacklog := c.Limits.backlog()
	perListener, badLimits := c.Limits.perListener()
	head := auditor.Head(c.Audit.Head)
	digest, badDigest := c.rightsDigest()
	keep, badRetention := c.Retention.build()
	out := shell.Config{
		Agents: agents, Policy: policy, Approvals: approvals, Plugins: plugins, Streams: streams, OpenSessions: c.OpenSessions,
		Backlog: backlog, PerListener: perListener, Notify: c.Notify, Head: head, RightsDigest: digest, Retention: keep,
	}
	return out, errors.Join(badAgents, badApprovals, badPlugins, badStreams, badBacklog, badLimits, badDigest, badRetention,
		c.Notify.Validate(), head.Validate())
}

// rightsDigest is of what the configuration says about who may do what, without secrets.
func (c Config) rightsDigest() (string, error) {
	who := maps.Clone(c.People)
	for name, p := range who {
		p.Token = ""
		who[name] = p
	}
	permissions := map[string][]string{}
	for name, a := range c.Agents {
		permissions[name] = a.Permissions
	}
	b, err := json.Marshal(map[string]any{
		"people": who, "policy": c.Policy, "approvals": c.Approvals, "hooks": c.Hooks, "permissions": permissions,
	})
	return audit.Digest(b), err
}
