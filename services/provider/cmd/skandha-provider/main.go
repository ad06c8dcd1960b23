// Command skandha-provider answers core's questions to language models.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/telemetry"
	"skandha.dev/services/provider"
)

type flags struct {
	NATS         string        `name:"nats" help:"URL of the NATS server." default:"nats://127.0.0.1:4222" env:"SKANDHA_NATS"`
	Token        string        `help:"Token to log in with." env:"SKANDHA_TOKEN" xor:"login"`
	Creds        string        `help:"File of NATS credentials to log in with." type:"existingfile" env:"SKANDHA_CREDS" xor:"login"`
	Provider     string        `help:"offline, openai or local; or several, separated by commas, in order of preference. Default: what the environment has keys for, else a local server, else offline." placeholder:"NAME" env:"SKANDHA_PROVIDER"`
	Model        string        `help:"Model to ask. Default: OPENAI_MODEL, or the server's." placeholder:"NAME" env:"SKANDHA_MODEL"`
	BaseURL      string        `name:"base-url" help:"An OpenAI-compatible API; its key is OPENAI_API_KEY. Default: OPENAI_BASE_URL, or OpenAI." placeholder:"URL" env:"SKANDHA_BASE_URL"`
	OfflineRules string        `help:"Rules of the offline provider instead of the built-in ones." type:"existingfile" placeholder:"FILE" env:"SKANDHA_OFFLINE_RULES"`
	TestRules    bool          `help:"The offline provider obeys the rules for tests." env:"SKANDHA_TEST_RULES"`
	LocalURL     string        `name:"local-url" help:"Where a local server is looked for; none: nowhere." placeholder:"URL" env:"SKANDHA_LOCAL_URL"`
	Slots        int           `help:"How many questions run at once." default:"16" env:"SKANDHA_SLOTS"`
	Drain        time.Duration `help:"How long to wait for running questions when stopped." default:"30s" env:"SKANDHA_DRAIN"`
	HTTP         string        `name:"http" help:"Where health and metrics are served, e.g. 127.0.0.1:8080. Default: nowhere." placeholder:"ADDR" env:"SKANDHA_HTTP"`
	HealthCheck  bool          `help:"Ask the service at --http whether it is ready, and end."`
	Log          string        `help:"Least level to log: debug, info, warn or error." default:"info" env:"SKANDHA_LOG"`
	LogFormat    string        `help:"Format of the log: text or json." default:"text" env:"SKANDHA_LOG_FORMAT"`
}

func main() {
	var f flags
	app := kong.Parse(&f, kong.Name("skandha-provider"), kong.Description("Answers core's questions to language models, over NATS. SIGTERM or SIGINT lets running questions finish; a second one ends at once."))
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	context.AfterFunc(ctx, stop) // the next signal kills
	app.FatalIfErrorf(run(ctx, f))
}

func run(ctx context.Context, f flags) error {
	if f.HealthCheck {
		return provider.HealthCheck(ctx, f.HTTP)
	}
	log, err := telemetry.NewLogger(os.Stderr, "provider", telemetry.LogConfig{Level: f.Log, Format: f.LogFormat})
	if err != nil {
		return err
	}
	b, err := bus.Connect(ctx, bus.Config{URL: f.NATS, Name: "provider", Token: f.Token, CredsFile: f.Creds, Logger: log})
	if err != nil {
		return err
	}
	defer b.Close()
	return provider.Run(ctx, provider.Config{Provider: f.Provider, Model: f.Model, BaseURL: f.BaseURL, OfflineRules: f.OfflineRules, TestRules: f.TestRules, LocalURL: f.LocalURL, Slots: f.Slots, DrainTimeout: f.Drain, HTTP: f.HTTP}, provider.Deps{Bus: b, Logger: log})
}
