// Command skandha-engine is the proxy between the sandbox service and a Docker engine.
package main

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"skandha.dev/services/internal/httpd"
	"skandha.dev/services/internal/process"
	"skandha.dev/services/sandbox/docker/proxy"
	"skandha.dev/services/sandbox/selection"
)

type engine struct {
	process.Alone

	Socket  string            `env:"SKANDHA_ENGINE_SOCKET" default:"/run/skandha/engine.sock" placeholder:"FILE" help:"The unix socket to serve, for the sandbox service's DOCKER_HOST."`
	Host    string            `env:"DOCKER_HOST" default:"unix:///var/run/docker.sock" placeholder:"unix://FILE" help:"The engine's socket."`
	Sandbox selection.Allowed `embed:""`
	Drain   time.Duration     `env:"SKANDHA_DRAIN" default:"20s" help:"How long sandboxes may stay attached on shutdown."`
}

func (e *engine) config() proxy.Config {
	c := e.Sandbox.Proxy()
	c.Engine, c.Drain = e.Host, e.Drain
	return c
}

// Check implements process.Loner.
func (e *engine) Check() error { return errors.Join(e.config().Validate(), e.Sandbox.Validate()) }

// Healthy implements process.Loner.
func (e *engine) Healthy(ctx context.Context) error { return httpd.CheckSocket(ctx, e.Socket) }

// Run implements process.Loner.
func (e *engine) Run(ctx context.Context, log *slog.Logger) error {
	c := e.config()
	c.Log = log
	p, err := proxy.New(c)
	if err != nil {
		return err
	}
	l, err := proxy.Listen(ctx, e.Socket)
	if err != nil {
		return err
	}
	log.Info("serving", "socket", e.Socket, "engine", e.Host)
	return p.Serve(ctx, l)
}

func main() {
	var e engine
	process.MainAlone("skandha-engine", "Passes on to a Docker engine what the sandbox service needs, and nothing else.",
		&e.Alone, &e)
}
