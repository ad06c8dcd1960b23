// Command skandha-provider is the provider service as a process of its own.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/telemetry"
	"skandha.dev/services/provider"
)

type cli struct {
	NATS         string        `name:"nats" env:"SKANDHA_NATS" default:"nats://127.0.0.1:4222" help:"The bus." placeholder:"URL"`
	Token        string        `env:"SKANDHA_TOKEN" help:"Token of the bus." placeholder:"TOKEN"`
	Creds        string        `env:"SKANDHA_CREDS" type:"existingfile" help:"Credentials file of the bus." placeholder:"FILE"`
	Provider     string        `env:"SKANDHA_PROVIDER" help:"offline, openai or local; or several, separated by commas, in order of preference. Default: what the environment has keys for, else a local server, else offline." placeholder:"NAME"`
	Model        string        `env:"SKANDHA_MODEL" help:"Model to ask. Default: OPENAI_MODEL, or the server's." placeholder:"NAME"`
	BaseURL      string        `name:"base-url" env:"SKANDHA_BASE_URL" help:"An OpenAI-compatible API. Default: OPENAI_BASE_URL, or OpenAI; its key is OPENAI_API_KEY." placeholder:"URL"`
	OfflineRules string        `env:"SKANDHA_OFFLINE_RULES" type:"existingfile" help:"Rules of the offline provider instead of the built-in ones." placeholder:"FILE"`
	TestRules    bool          `help:"The offline provider obeys the rules for tests."`
	LocalURL     string        `name:"local-url" env:"SKANDHA_LOCAL_URL" help:"Where a local server is looked for; none: nowhere." placeholder:"URL"`
	Slots        int           `env:"SKANDHA_SLOTS" default:"16" help:"Questions at a time."`
	Drain        time.Duration `default:"30s" help:"How long running questions may take at the end."`
	Log          string        `env:"SKANDHA_LOG" enum:"debug,info,warn,error" default:"info" help:"debug, info, warn or error."`
}

func main() {
	var c cli
	k := kong.Parse(&c, kong.Name("skandha-provider"), kong.Description("Answers core's questions to language models."), kong.UsageOnError())
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	k.FatalIfErrorf(c.run(ctx))
}

func (c *cli) run(ctx context.Context) error {
	log, err := telemetry.NewLogger(os.Stderr, "provider", telemetry.LogConfig{Level: c.Log})
	if err != nil {
		return err
	}
	b, err := bus.Connect(ctx, bus.Config{URL: c.NATS, Token: c.Token, CredsFile: c.Creds, Name: "provider", Logger: log})
	if err != nil {
		return fmt.Errorf("connecting to the bus: %w", err)
	}
	defer b.Close()
	return provider.Run(ctx, provider.Config{
		Provider: c.Provider, Model: c.Model, BaseURL: c.BaseURL, OfflineRules: c.OfflineRules, TestRules: c.TestRules,
		LocalURL: c.LocalURL, Slots: c.Slots, DrainTimeout: c.Drain,
	}, provider.Deps{Bus: b, Logger: log})
}
