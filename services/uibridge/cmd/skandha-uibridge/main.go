// Command skandha-uibridge is the UI bridge as a process of its own.
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

	Config string        `env:"SKANDHA_CONFIG" type:"existingfile" placeholder:"FILE" help:"Who may do what, and limits (YAML, section ui). The owner's token is SKANDHA_UI_TOKEN, or kept in --data."`
	Listen string        `env:"SKANDHA_UI_LISTEN" placeholder:"HOST:PORT" help:"Where the page is served. Default: 127.0.0.1:7070."`
	URL    string        `name:"url" env:"SKANDHA_UI_URL" placeholder:"URL" help:"How browsers reach it, if not there: https://agent.example.org."`
	Port   int           `env:"SKANDHA_UI_PORT" placeholder:"PORT" help:"Port of loopback at which a container publishes it, if --url is not set."`
	Data   string        `env:"SKANDHA_UI_DATA" placeholder:"DIR" help:"Where the owner's token is kept, if it is not set, and who has logged out."`
	Drain  time.Duration `env:"SKANDHA_DRAIN" default:"10s" help:"How long requests may take when stopped."`
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
	e.Ready(func() error { return errors.New("the page is not served yet") })
	cfg, err := s.config()
	if err != nil {
		return err
	}
	b, err := uibridge.New(cfg, uibridge.Options{Drain: s.Drain}, uibridge.Deps{Bus: e.Bus, Log: e.Log, DataDir: s.Data})
	if err != nil {
		return err
	}
	if b.Made() != "" { // what this prints is kept in logs
		e.Log.Info("a token was made for the owner", "kept in", filepath.Join(s.Data, access.TokenFile))
	}
	e.Ready(b.Ready)
	e.Metrics(b.Counters)
	return b.Run(ctx)
}

func main() {
	var s service
	process.Main("skandha-uibridge", "Shows Skandha's agents to people: the web page, WebSocket, SSE, AG-UI, an OpenAI-compatible API.", &s.Flags, &s)
}
