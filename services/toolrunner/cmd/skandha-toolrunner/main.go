// Command skandha-toolrunner runs tools for Skandha's core.
package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/telemetry"
	"skandha.dev/services/toolrunner"
)

type flags struct {
	NATS      string           `name:"nats" help:"URL of the NATS server." default:"nats://127.0.0.1:4222" env:"SKANDHA_NATS"`
	Token     string           `help:"Token to log in with." env:"SKANDHA_TOKEN" xor:"login"`
	Creds     string           `help:"File of NATS credentials to log in with." type:"existingfile" env:"SKANDHA_CREDS" xor:"login"`
	Workspace string           `help:"The one directory that tools see." default:"workspace" env:"SKANDHA_WORKSPACE"`
	Slots     int              `help:"How many calls run at once." default:"16" env:"SKANDHA_SLOTS"`
	HTTPAllow []string         `name:"http-allow" help:"Hosts that http:request may ask, e.g. api.example.com or *.example.com:8443. None: the tool is not offered." placeholder:"HOST" env:"SKANDHA_HTTP_ALLOW"`
	Enable    []string         `help:"Tools to offer, e.g. file_system:*. Default: all." placeholder:"PATTERN" env:"SKANDHA_ENABLE"`
	Disable   []string         `help:"Tools not to offer; wins over --enable." placeholder:"PATTERN" env:"SKANDHA_DISABLE"`
	Drain     time.Duration    `help:"How long to wait for running calls when stopped." default:"30s" env:"SKANDHA_DRAIN"`
	TestTools bool             `help:"Offer the group test, for tests of the system." env:"SKANDHA_TEST_TOOLS"`
	Log       string           `help:"Least level to log: debug, info, warn or error." default:"info" env:"SKANDHA_LOG"`
	LogFormat string           `help:"Format of the log: text or json." default:"text" env:"SKANDHA_LOG_FORMAT"`
	Version   kong.VersionFlag `help:"Print the version."`
}

func main() {
	var f flags
	app := kong.Parse(&f, kong.Name("skandha-toolrunner"), kong.Vars{"version": toolrunner.Version()},
		kong.Description("Runs tools for Skandha's core, over NATS. SIGTERM or SIGINT lets running calls finish; a second one ends at once."))
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	context.AfterFunc(ctx, stop) // the next signal kills
	app.FatalIfErrorf(run(ctx, f))
}

func run(ctx context.Context, f flags) error {
	cfg := toolrunner.Config{
		WorkspaceDir: f.Workspace, Slots: f.Slots, HTTPAllow: f.HTTPAllow, Enable: f.Enable, Disable: f.Disable,
		TestTools: f.TestTools, DrainTimeout: f.Drain,
	}
	log, err := telemetry.NewLogger(os.Stderr, toolrunner.Service, telemetry.LogConfig{Level: f.Log, Format: f.LogFormat})
	if err := errors.Join(err, cfg.Validate()); err != nil {
		return err
	}
	b, err := bus.Connect(ctx, bus.Config{URL: f.NATS, Name: toolrunner.Service, Token: f.Token, CredsFile: f.Creds, Logger: log})
	if err != nil {
		return err
	}
	defer b.Close()
	return toolrunner.Run(ctx, cfg, toolrunner.Deps{Bus: b, Logger: log})
}
