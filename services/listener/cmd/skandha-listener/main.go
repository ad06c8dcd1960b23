// Command skandha-listener runs the listeners as a separate process.
package main

import (
	"context"
	"os"
	"time"

	"skandha.dev/services/internal/process"
	"skandha.dev/services/listener"
)

type service struct {
	process.Flags

	Config  string        `env:"SKANDHA_CONFIG" type:"existingfile" placeholder:"FILE" help:"The listeners (YAML, sections listeners and email): webhooks, WebSockets, cron, e-mail, standard input."`
	Stdin   string        `placeholder:"NAME" help:"Also listen on standard input, under this name: each line is an input. The listener ends at end of file."`
	Agent   string        `default:"main" help:"Agent for --stdin."`
	Session string        `help:"Session for --stdin. Default: its name."`
	JSON    bool          `name:"json" help:"Lines of --stdin are JSON objects: text, and optionally session, id and mode."`
	Acks    bool          `help:"Write the result of each line of --stdin to standard output, as JSON."`
	State   string        `name:"state-dir" env:"SKANDHA_STATE_DIR" placeholder:"DIR" help:"Directory of this machine in which the e-mail listeners record how far answers got; it should survive restarts. Default: none."`
	Drain   time.Duration `env:"SKANDHA_DRAIN" default:"10s" help:"Grace period for accepted inputs on shutdown."`
}

func (s *service) config() (listener.Config, error) {
	return listener.Flags{
		File: s.Config, Stdin: s.Stdin, Agent: s.Agent, Session: s.Session, JSON: s.JSON, Acks: s.Acks,
	}.Config()
}

// Check implements process.Service.
func (s *service) Check() error {
	_, err := s.config()
	return err
}

// Run implements process.Service.
func (s *service) Run(ctx context.Context, e *process.Env) error {
	cfg, err := s.config()
	if err != nil {
		return err
	}
	l, err := listener.New(cfg, listener.Options{Drain: s.Drain, StateDir: s.State},
		listener.Deps{Bus: e.Bus, Logger: e.Log, Stdin: os.Stdin, Stdout: os.Stdout})
	if err != nil {
		return err
	}
	e.Ready(l.Ready)
	e.Metrics(l.Counters)
	return l.Run(ctx)
}

func main() {
	var s service
	process.Main("skandha-listener",
		"Passes messages from outside to Skandha's agents: standard input, webhooks, WebSockets, cron, e-mail.", &s.Flags, &s)
}
