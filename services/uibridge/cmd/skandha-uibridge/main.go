// Command skandha-uibridge runs the UI bridge as a separate process.
package main

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	"skandha.dev/services/internal/process"
	"skandha.dev/services/uibridge"
	"skandha.dev/services/uibridge/access"
)

type service struct {
	process.Flags

	Config string        `env:"SKANDHA_CONFIG" type:"existingfile" placeholder:"FILE" help:"Tokens, rights and limits (YAML, section ui). The owner's token is read from SKANDHA_UI_TOKEN, or kept in --data."`
	Listen string        `env:"SKANDHA_UI_LISTEN" placeholder:"HOST:PORT" help:"Address to serve the page on. Default: 127.0.0.1:7070."`
	URL    string        `name:"url" env:"SKANDHA_UI_URL" placeholder:"URL" help:"URL that browsers use, if different: https://agent.example.org."`
	Port   int           `env:"SKANDHA_UI_PORT" placeholder:"PORT" help:"Loopback port at which a container publishes the page, if --url is not set."`
	Data   string        `env:"SKANDHA_UI_DATA" placeholder:"DIR" help:"Directory for the owner's token, if it is not set, and for ended logins."`
	Drain  time.Duration `env:"SKANDHA_DRAIN" default:"10s" help:"Grace period for requests on shutdown."`
}

func (s *service) config() (uibridge.Config, error) {
	return uibridge.Flags{File: s.Config, Listen: s.Listen, URL: s.URL, Port: s.Port}.Config()
}

// Check implements process.Service.
func (s *service) Check() error {
	_, err := s.config()
	return err
}

// Run implements process.Service.
func (s *service) Run(ctx context.Context, e *process.Env) error {
	e.Ready(func() error { return errors.New("the page is not being served yet") })
	cfg, err := s.config()
	if err != nil {
		return err
	}
	b, err := uibridge.New(cfg, uibridge.Options{Drain: s.Drain}, uibridge.Deps{Bus: e.Bus, Log: e.Log, DataDir: s.Data})
	if err != nil {
		return err
	}
	if b.Made() != "" { // its output is kept in logs, so the token itself is not printed
		e.Log.Info("generated a token for the owner", "kept in", filepath.Join(s.Data, access.TokenFile))
	}
	e.Ready(b.Ready)
	e.Metrics(b.Counters)
	return b.Run(ctx)
}

func main() {
	var s service
	process.Main("skandha-uibridge",
		"Shows Skandha's agents to people: the web page, WebSocket, SSE, AG-UI, an OpenAI-compatible API.", &s.Flags, &s)
}
