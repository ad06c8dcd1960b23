// Package process runs a service as a process, as every service's main does: flags,
// signals, log, the connection to the bus, and the HTTP server for health. MainAlone runs
// one that is not on the bus.
//
// SIGTERM or SIGINT ends the service's context, so that it drains; a second one
// kills the process.
package process

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"

	"github.com/alecthomas/kong"
	"github.com/nats-io/nuid"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/telemetry"
	"skandha.dev/services/internal/buildinfo"
	"skandha.dev/services/internal/httpd"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/signals"
	"skandha.dev/services/internal/trust"
)

// Flags are the flags of every service. A service's own struct embeds them.
type Flags struct {
	NATS        string           `name:"nats" env:"SKANDHA_NATS" default:"nats://127.0.0.1:4222" placeholder:"URL" help:"The bus."`
	Token       string           `env:"SKANDHA_TOKEN" xor:"login" placeholder:"TOKEN" help:"Token to log in with."`
	Creds       string           `env:"SKANDHA_CREDS" xor:"login" type:"existingfile" placeholder:"FILE" help:"File of NATS credentials to log in with."`
	Key         string           `env:"SKANDHA_KEY" xor:"login" type:"existingfile" placeholder:"FILE" help:"Key of the service, with which this process makes its credentials: skandha secrets writes it."`
	CA          string           `name:"tls-ca" env:"SKANDHA_TLS_CA" type:"existingfile" placeholder:"FILE" help:"Certificates to verify the bus against (PEM)."`
	HTTP        string           `name:"http" env:"SKANDHA_HTTP" placeholder:"HOST:PORT" help:"Serve /healthz, /readyz and /metrics here."`
	HealthCheck bool             `name:"health-check" help:"Ask the service that runs with the same --http whether it is ready, and exit 0 or 1."`
	Log         string           `env:"SKANDHA_LOG" enum:"debug,info,warn,error" default:"info" help:"What is logged: debug, info, warn or error."`
	LogFormat   string           `env:"SKANDHA_LOG_FORMAT" enum:"text,json" default:"text" help:"text or json."`
	Version     kong.VersionFlag `help:"Print the version."`
}

// Alone are the flags of a process that is not on the bus. Its own struct embeds them.
type Alone struct {
	HealthCheck bool             `name:"health-check" help:"Ask the process that runs with the same flags whether it is ready, and exit 0 or 1."`
	Log         string           `env:"SKANDHA_LOG" enum:"debug,info,warn,error" default:"info" help:"What is logged: debug, info, warn or error."`
	LogFormat   string           `env:"SKANDHA_LOG_FORMAT" enum:"text,json" default:"text" help:"text or json."`
	Version     kong.VersionFlag `help:"Print the version."`
}

// Loner is a process that is not on the bus, and its flags.
type Loner interface {
	// Check verifies the flags before anything is started.
	Check() error
	// Run serves until ctx ends, then drains.
	Run(ctx context.Context, log *slog.Logger) error
	// Healthy asks the process that runs with the same flags whether it is ready.
	Healthy(ctx context.Context) error
}

// Env is what a process provides to its service.
type Env struct {
	Bus     *journal.Journal
	Log     *slog.Logger
	Signals *signals.Signals // traces and metrics, if the environment asks for them

	ready atomic.Pointer[func() error]
}

// Ready replaces the check of /readyz, which by default is whether the bus is connected.
func (e *Env) Ready(ready func() error) { e.ready.Store(&ready) }

// Metrics adds values to the metrics of the process.
func (e *Env) Metrics(metrics func() map[string]int64) { e.Signals.Counters(metrics) }

func (e *Env) health(addr string) httpd.Config {
	return httpd.Config{
		Addr: addr, Log: e.Log, Scraped: e.Signals.Handler(),
		Ready: func() error {
			if ready := e.ready.Load(); ready != nil {
				return (*ready)()
			}
			if !e.Bus.Connected() {
				return errors.New("not connected to the bus")
			}
			return nil
		},
	}
}

// Service is a service and its flags.
type Service interface {
	// Check verifies the flags before anything is started.
	Check() error
	// Run serves until ctx ends, then drains.
	Run(ctx context.Context, e *Env) error
}

// Usage reports a wrong command line of a program in two lines, and returns its exit code.
func Usage(program string, err error) (code int) {
	command := program
	var parse *kong.ParseError
	if errors.As(err, &parse) && parse.Context.Selected() != nil {
		command = parse.Context.Selected().FullPath()
	}
	fmt.Fprintf(os.Stderr, "%s: %s\nRun %q for usage.\n", program, telemetry.Redact(err.Error()), command+" --help")
	return 2
}

// Main parses the command line into service, whose embedded Flags are f, and
// runs it. It does not return.
func Main(name, description string, f *Flags, service Service) {
	start(name, description, service, func(ctx context.Context) error { return f.run(ctx, name, service) })
}

// MainAlone is Main for a process that is not on the bus.
func MainAlone(name, description string, f *Alone, l Loner) {
	start(name, description, l, func(ctx context.Context) error {
		if f.HealthCheck {
			return l.Healthy(ctx)
		}
		if err := l.Check(); err != nil {
			return err
		}
		log, err := logger(name, f.Log, f.LogFormat)
		if err != nil {
			return err
		}
		return l.Run(ctx, log)
	})
}

// start parses the command line into flags and runs the process. It does not return.
func start(name, description string, flags any, run func(context.Context) error) {
	parser := kong.Must(flags, kong.Name(name), kong.Vars{"version": buildinfo.String()},
		kong.Description(description+" SIGTERM or SIGINT lets it finish what runs; a second one ends it at once."))
	k, err := parser.Parse(os.Args[1:])
	if err != nil {
		os.Exit(Usage(name, err))
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	context.AfterFunc(ctx, stop) // the next signal kills
	if err := run(ctx); err != nil {
		k.Fatalf("%s", telemetry.Redact(err.Error()))
	}
	os.Exit(0)
}

func (f *Flags) run(ctx context.Context, name string, service Service) error {
	if f.HealthCheck {
		return httpd.Check(ctx, f.HTTP)
	}
	if err := service.Check(); err != nil {
		return err
	}
	log, err := logger(name, f.Log, f.LogFormat)
	if err != nil {
		return err
	}
	sent, err := signals.Start(ctx, signals.Config{Service: name, Instance: nuid.Next(), Scraped: f.HTTP != "", Log: log})
	if err != nil {
		return err
	}
	defer func() {
		if err := sent.Stop(); err != nil {
			log.Warn("the last telemetry was not delivered", "error", err)
		}
	}()
	log = sent.Logger(log, short(name))
	cfg := bus.Config{
		URL: f.NATS, Name: short(name), Token: f.Token, CredsFile: f.Creds, TLS: bus.TLS{CA: f.CA}, Logger: log,
	}
	if f.Key != "" {
		if cfg.Credentials, err = trust.CredentialsOf(short(name), f.Key); err != nil {
			return err
		}
	}
	b, err := journal.Connect(ctx, cfg)
	if err != nil {
		return fmt.Errorf("connecting to the bus: %w", err)
	}
	defer b.Close()
	sent.Counters(httpd.Process)
	return f.serve(ctx, service, &Env{Bus: b, Log: log, Signals: sent})
}

func short(name string) string { return name[len("skandha-"):] }

func logger(name, level, format string) (*slog.Logger, error) {
	return telemetry.NewLogger(os.Stderr, short(name), telemetry.LogConfig{Level: level, Format: format})
}

// serve runs the service and its HTTP server. If one fails, the other ends.
func (f *Flags) serve(ctx context.Context, service Service, e *Env) error {
	ctx, fail := context.WithCancel(ctx)
	defer fail()
	web, stopWeb := context.WithCancel(context.WithoutCancel(ctx)) // health is answered while the service drains
	failed := make(chan error, 1)
	go func() {
		err := httpd.Serve(web, e.health(f.HTTP))
		if err != nil {
			fail()
		}
		failed <- err
	}()
	err := service.Run(ctx, e)
	stopWeb()
	return errors.Join(err, <-failed)
}
