// Command skandha-toolrunner is the tool runner with the tools of package effects, for tests
// of whole processes.
package main

import (
	"context"
	"time"

	"skandha.dev/services/internal/process"
	"skandha.dev/services/test/effects"
	"skandha.dev/services/toolrunner"
)

type service struct {
	process.Flags

	Workspace string        `default:"workspace" help:"The only directory that tools can reach."`
	Drain     time.Duration `default:"30s" help:"Grace period for running calls on shutdown."`
}

func (s *service) config() toolrunner.Config {
	return toolrunner.Config{WorkspaceDir: s.Workspace, DrainTimeout: s.Drain}
}

// Check implements process.Service.
func (s *service) Check() error { return s.config().Validate() }

// Run implements process.Service.
func (s *service) Run(ctx context.Context, e *process.Env) error {
	extra, err := effects.In(s.Workspace)
	if err != nil {
		return err
	}
	return toolrunner.Run(ctx, s.config(), toolrunner.Deps{Bus: e.Bus, Logger: e.Log, Extra: extra})
}

func main() {
	var s service
	process.Main("skandha-toolrunner", "Runs tools that leave traces, for tests.", &s.Flags, &s)
}
