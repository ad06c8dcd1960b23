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
	"skandha.dev/services/skandha/system"
	"skandha.dev/services/uibridge"
)

// upCmd runs the whole system until it is told to stop.
type upCmd struct {
	Listen string `name:"listen" env:"SKANDHA_LISTEN" placeholder:"HOST:PORT" help:"Where the bus listens for other processes and languages. Default: a free port on loopback. More than loopback needs --token."`
	HTTP   string `name:"http" env:"SKANDHA_HTTP" placeholder:"HOST:PORT" help:"Serve /healthz, /readyz and /metrics here."`
	Store  string `env:"SKANDHA_STORE" placeholder:"URL" help:"Where the view is kept: redis://… or a file. Default: SQLite in --data."`
	Ready  bool   `name:"ready-line" hidden:"" help:"Print READY when it is up, for scripts."`
	Slots  int    `default:"64" help:"How many tool calls, and how many model calls, may run at once."`
}

// Run implements the command.
func (u *upCmd) Run(ctx context.Context, g *globals) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	cfg := g.systemConfig()
	cfg.NATS, cfg.HTTP, cfg.Store, cfg.Token, cfg.Slots = u.Listen, u.HTTP, u.Store, g.Token, u.Slots
	cfg.Stdin, cfg.UI = os.Stdin, g.uiConfig()
	if g.given["nats"] {
		return errors.New("--nats names a bus that runs already; --listen HOST:PORT is where the bus of this system listens")
	}
	sys, err := system.Start(ctx, cfg)
	if err != nil {
		return err
	}
	defer sys.Stop()
	fmt.Printf("Skandha %s is up: %s\n", buildinfo.String(), sys.About())
	fmt.Printf("  talk to it    %s chat --data %s\n", buildinfo.Command(), shellQuote(g.Data))
	fmt.Printf("  join it       eval \"$(skandha env --data %s)\"\n", shellQuote(g.Data))
	if err := printPage(ctx, sys, g.Data); err != nil {
		return err
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
		fmt.Println("stopping: open turns are finished or handed back")
		return nil
	case err := <-sys.Failed():
		return err
	}
}

// printPage says where the page is. Only a terminal is shown a link that logs in and, the
// first time, the token of the owner: other output is kept, as a service's log is.
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
		page = link.URL + "  (opens once, within 5 minutes)"
		token = sys.UIToken() + "  (shown this once; it is kept in " + sys.UITokenFile() + ")"
	}
	fmt.Printf("  page          %s\n", page)
	if sys.UIPortTaken() {
		fmt.Printf("                (%s is taken; --ui HOST:PORT sets another)\n", uibridge.DefaultListen)
	}
	fmt.Printf("  new link      %s ui --data %s\n", buildinfo.Command(), shellQuote(data))
	if sys.UIToken() != "" {
		fmt.Printf("  page's token  %s\n", token)
	}
	return nil
}

// serverCmd runs the bus alone.
type serverCmd struct {
	Listen string `default:"127.0.0.1:4222" env:"SKANDHA_LISTEN" help:"Where it listens. More than loopback needs --token."`
}

// Run implements the command.
func (s *serverCmd) Run(ctx context.Context, g *globals) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	if run, err := system.Running(g.Data); err == nil {
		return fmt.Errorf("process %d runs a system on %s, with a bus of its own; name another directory by --data", run.PID, g.Data)
	}
	srv, err := natsserver.Start(natsserver.Config{
		StoreDir: g.Data, Sync: natsserver.Sync(g.Sync), Addr: s.Listen, Token: g.Token, Heal: true, Logger: g.logger(),
	})
	if errors.Is(err, natsserver.ErrInUse) {
		return fmt.Errorf("%w; name another by --data", err)
	}
	if err != nil {
		return err
	}
	defer srv.Shutdown()
	fmt.Printf("NATS listens on %s, its log is in %s\n", srv.ClientURL(), g.Data)
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
