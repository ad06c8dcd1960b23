package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"skandha.dev/services/internal/buildinfo"
	"skandha.dev/services/internal/natsserver"
	"skandha.dev/services/internal/trust"
	"skandha.dev/services/skandha/system"
	"skandha.dev/services/uibridge"
)

// upCmd runs the whole system until it is stopped.
type upCmd struct {
	Listen string `name:"listen" env:"SKANDHA_LISTEN" placeholder:"HOST:PORT" help:"Address at which the bus listens for other processes. Default: a free port on loopback. Any other address requires --token."`
	MQTT   string `name:"mqtt" env:"SKANDHA_MQTT" placeholder:"HOST:PORT" help:"Also speak MQTT here, for devices, e.g. 127.0.0.1:1883. Their password is in mqtt.password of --data."`
	HTTP   string `name:"http" env:"SKANDHA_HTTP" placeholder:"HOST:PORT" help:"Serve /healthz, /readyz and /metrics here."`
	Store  string `env:"SKANDHA_STORE" placeholder:"URL" help:"Store of the view: redis://… or a file. Default: SQLite in --data."`
	Memory string `env:"SKANDHA_MEMORY_STORE" placeholder:"URL" help:"Index of what agents remember: redis://…, chroma+http://…, plugin://NAME or a file. Default: beside the view."`
	Ready  bool   `name:"ready-line" hidden:"" help:"Print READY once the system is up, for scripts."`
	Slots  int    `default:"64" help:"Maximum number of concurrent tool calls, and of concurrent model calls."`
}

// Run implements the command.
func (u *upCmd) Run(ctx context.Context, g *globals) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	cfg := g.systemConfig()
	cfg.NATS, cfg.HTTP, cfg.Store, cfg.Memory, cfg.Token, cfg.Slots = u.Listen, u.HTTP, u.Store, u.Memory, g.Token, u.Slots
	cfg.MQTT = u.MQTT
	cfg.Stdin, cfg.UI = os.Stdin, g.uiConfig()
	if g.given["nats"] {
		return errors.New("--nats names a running bus; use --listen HOST:PORT to set where this system's bus listens")
	}
	sys, err := system.Start(ctx, cfg)
	if err != nil {
		return err
	}
	defer sys.Stop()
	fmt.Printf("Skandha %s is up: %s\n", buildinfo.String(), sys.About())
	fmt.Printf("  talk to it    %s chat --data %s\n", buildinfo.Command(), shellQuote(g.Data))
	fmt.Printf("  join it       eval \"$(skandha env --data %s NAME)\", NAME being that of the plugin or listener\n", shellQuote(g.Data))
	if err := printPage(ctx, sys, g.Data); err != nil {
		return err
	}
	if u.MQTT != "" {
		fmt.Printf("  mqtt          %s, any user, password in %s\n", u.MQTT, shellQuote(sys.MQTTPasswordFile()))
	}
	if u.HTTP != "" {
		fmt.Printf("  health        http://%s/healthz and /metrics\n", u.HTTP)
	}
	fmt.Println("Ctrl-C stops it.")
	if u.Ready {
		fmt.Println("READY")
	}
	select {
	case <-ctx.Done():
		fmt.Println("stopping: finishing open turns or handing them back")
		return nil
	case err := <-sys.Failed():
		return err
	}
}

// printPage prints the page's address. Only a terminal is shown a link that logs in and,
// the first time, the owner's token: other output may be kept, as in a service's log.
func printPage(ctx context.Context, sys *system.System, data string) error {
	link, err := sys.UILink(ctx)
	if errors.Is(err, system.ErrNoUI) {
		return nil
	}
	if err != nil {
		return err
	}
	page, token := link.Page, "kept in "+sys.UITokenFile()
	if isTerminal(os.Stdout) {
		page = link.URL + "  (works once, within 5 minutes)"
		token = sys.UIToken() + "  (shown only this once; kept in " + sys.UITokenFile() + ")"
	}
	fmt.Printf("  page          %s\n", page)
	if sys.UIPortTaken() {
		fmt.Printf("                (%s is in use; --ui HOST:PORT sets another)\n", uibridge.DefaultListen)
	}
	fmt.Printf("  new link      %s ui --data %s\n", buildinfo.Command(), shellQuote(data))
	if sys.UIToken() != "" {
		fmt.Printf("  page's token  %s\n", token)
	}
	return nil
}

// serverCmd runs only the bus.
type serverCmd struct {
	Listen string `default:"127.0.0.1:4222" env:"SKANDHA_LISTEN" help:"Address to listen on. Any other than loopback requires --token or --keys."`
	Keys   string `type:"existingfile" placeholder:"FILE" help:"Enforce who may do what, with the keys that skandha secrets has written."`
}

// Run implements the command.
func (s *serverCmd) Run(ctx context.Context, g *globals) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	if run, err := system.Running(g.Data); err == nil {
		return fmt.Errorf("process %d runs a system with its own bus on %s; name another directory with --data", run.PID,
			g.Data)
	}
	cfg := natsserver.Config{
		StoreDir: g.Data, Sync: natsserver.Sync(g.Sync), Addr: s.Listen, Token: g.Token, Heal: true, Logger: g.logger(),
	}
	if s.Keys != "" {
		a, err := trust.Read(s.Keys)
		if err != nil {
			return err
		}
		if cfg.Operator, err = a.Server(); err != nil {
			return err
		}
	}
	srv, err := natsserver.Start(cfg)
	if errors.Is(err, natsserver.ErrInUse) {
		return fmt.Errorf("%w; name another with --data", err)
	}
	if err != nil {
		return err
	}
	defer srv.Shutdown()
	fmt.Printf("NATS listens on %s; its log is in %s\n", srv.ClientURL(), g.Data)
	<-ctx.Done()
	return nil
}

// versionCmd prints the version.
type versionCmd struct{}

// Run implements the command.
func (versionCmd) Run() error {
	_, err := fmt.Println(buildinfo.String())
	return err
}
