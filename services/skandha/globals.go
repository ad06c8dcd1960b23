package main

import (
	"context"
	"errors"
	"fmt"
	"os/user"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/telemetry"
	"skandha.dev/services/internal/certificate"
	"skandha.dev/services/internal/client"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/trust"
	"skandha.dev/services/sandbox/selection"
	"skandha.dev/services/skandha/system"
	"skandha.dev/services/toolrunner/tools/filesystem"
	"skandha.dev/services/toolrunner/tools/web"
	"skandha.dev/services/uibridge"
)

// globals are the flags of every command.
type globals struct {
	NATS   string `name:"nats" env:"SKANDHA_NATS" group:"The system" placeholder:"URL" help:"Connect to the system on this bus, e.g. nats://127.0.0.1:4222. Default: the system on --data."`
	Outer  string `name:"nats-outside" env:"SKANDHA_NATS_OUTSIDE" hidden:"" help:"The same bus as plugins and listeners reach it from outside of the containers."`
	Token  string `env:"SKANDHA_TOKEN" group:"The system" help:"Token for the bus." placeholder:"TOKEN"`
	Creds  string `env:"SKANDHA_CREDS" group:"The system" type:"existingfile" help:"Credentials file for the bus." placeholder:"FILE"`
	CA     string `name:"tls-ca" env:"SKANDHA_TLS_CA" group:"The system" type:"existingfile" help:"Certificates to verify the bus against (PEM). With --nats only." placeholder:"FILE"`
	Data   string `env:"SKANDHA_DATA" group:"The system" help:"Data directory of the system: its log, its view and the agent's workspace. Default: ./.data if a system has run there, else ${data}. Takes precedence over SKANDHA_NATS." placeholder:"DIR"`
	Log    string `env:"SKANDHA_LOG" group:"The system" enum:"debug,info,warn,error" default:"warn" help:"Lowest level that is logged to standard error: debug, info, warn or error. While chatting at a terminal, warnings go to DATA/chat.log."`
	Config string `group:"Embedded system" env:"SKANDHA_CONFIG" type:"existingfile" help:"Configuration file (YAML) for an embedded system: agents and policy." placeholder:"FILE"`

	Provider     string    `group:"Embedded system" env:"SKANDHA_PROVIDER" help:"Provider for an embedded system: openai, anthropic, gemini, local or offline; or several, separated by commas, in order of preference. Default: the one that the environment has a key for." placeholder:"NAME"`
	Model        string    `group:"Embedded system" env:"SKANDHA_MODEL" help:"Model to use." placeholder:"NAME"`
	BaseURL      string    `group:"Embedded system" env:"SKANDHA_BASE_URL" help:"Base URL of the provider's API." placeholder:"URL"`
	Embedder     string    `group:"Embedded system" env:"SKANDHA_EMBEDDER" help:"What computes embeddings for an embedded system, such as ollama/nomic-embed-text, openai/text-embedding-3-small or gemini/gemini-embedding-001; or none. Default: providers.embedder of the configuration file, else none: searches are lexical." placeholder:"PROVIDER/MODEL"`
	Transcriber  string    `group:"Embedded system" env:"SKANDHA_TRANSCRIBER" help:"What turns speech into text for an embedded system, such as openai/whisper-1; command, which is providers.transcriber.command of the configuration file; or none. Default: providers.transcriber of the configuration file, else none." placeholder:"PROVIDER/MODEL"`
	Speaker      string    `group:"Embedded system" env:"SKANDHA_SPEAKER" help:"What turns text into speech for an embedded system, such as openai/tts-1; command, which is providers.speaker.command of the configuration file; or none. Default: providers.speaker of the configuration file, else none: the page uses the browser's." placeholder:"PROVIDER/MODEL"`
	OfflineRules string    `group:"Embedded system" env:"SKANDHA_OFFLINE_RULES" type:"existingfile" help:"Rules for the offline provider, instead of the built-in ones." placeholder:"FILE"`
	Workspace    string    `group:"Embedded system" env:"SKANDHA_WORKSPACE" help:"Directory that the agent's file tools are confined to. Default: DATA/workspace." placeholder:"DIR"`
	NotesPlugin  string    `group:"Embedded system" env:"SKANDHA_NOTES_PLUGIN" help:"Storage plugin that keeps the agents' notes. Default: files in the workspace." placeholder:"NAME"`
	HTTP         web.Hosts `embed:"" prefix:"http-" group:"Embedded system"`
	NoSandbox    bool      `group:"Embedded system" env:"SKANDHA_NO_SANDBOX" help:"Do not run code: an embedded system does not offer python:execute, shell:execute or sandbox_fs."`
	UI           string    `name:"ui" group:"Embedded system" env:"SKANDHA_UI" placeholder:"HOST:PORT|off" help:"Address at which an embedded system (of up or chat) serves its page. Default: 127.0.0.1:7070 or, if that is in use, the next free port. off: no page."`
	Rights       bool      `group:"Embedded system" env:"SKANDHA_RIGHTS" default:"true" negatable:"" help:"Let the bus of an embedded system enforce who may do what; plugins and listeners get credentials by skandha env NAME and skandha plugins invite. With --no-rights, any client with the token of the bus may do everything."`
	Sync         string    `group:"Embedded system" env:"SKANDHA_SYNC" enum:"always,relaxed" default:"always" help:"When an embedded log is synced to disk: always (before a write is acknowledged; survives power loss) or relaxed (survives kill -9)."`

	Files   filesystem.Limits `embed:"" prefix:"files-" group:"File tools of an embedded system"`
	Web     web.Config        `embed:"" prefix:"web-" group:"Web tools of an embedded system"`
	Sandbox selection.Flags   `embed:"" prefix:"sandbox-" group:"Sandboxes of an embedded system"`

	HelpAll helpAll `name:"help-all" help:"Show all flags."`

	given    map[string]bool // flags of the command line
	embedded []string        // those among them for an embedded system
	logFile  *logFile        // nil: log to standard error
}

// systemConfig returns the configuration of an embedded system.
func (g *globals) systemConfig() system.Config {
	cfg := system.Config{
		Data: g.Data, ConfigFile: g.Config, Sync: g.Sync, Log: g.logger(),
		Provider: g.Provider, Model: g.Model, BaseURL: g.BaseURL, Embedder: g.Embedder,
		Transcriber: g.Transcriber, Speaker: g.Speaker, OfflineRules: g.OfflineRules,
		Open:      !g.Rights,
		Workspace: g.Workspace, Files: g.Files, Requests: g.HTTP, Web: g.Web, NotesPlugin: g.NotesPlugin,
	}
	if !g.NoSandbox {
		cfg.Sandbox = &system.Sandbox{Flags: g.Sandbox}
	}
	return cfg
}

// uiConfig returns the configuration of an embedded system's page; nil without a page.
func (g *globals) uiConfig() *system.UI {
	if g.UI == "off" {
		return nil
	}
	return &system.UI{Listen: g.UI}
}

// connection is a client of a system, which may run in this process.
type connection struct {
	*client.Client
	own   *system.System // nil unless this process runs the system
	about string         // what it is connected to, for display
}

// connect connects to the system that the flags name ([globals.find]), or else starts
// one without a page.
func (g *globals) connect(ctx context.Context) (*connection, error) { return g.reach(ctx, nil) }

// connectToStay is connect for an interactive command: a system that it starts also
// serves the page; see [connection.page].
func (g *globals) connectToStay(ctx context.Context) (*connection, error) {
	return g.reach(ctx, g.uiConfig())
}

func (g *globals) reach(ctx context.Context, ui *system.UI) (*connection, error) {
	c, err := g.connectRunning(ctx)
	if err == nil && len(g.embedded) > 0 {
		c.close()
		return nil, fmt.Errorf("%s: only for a system that this command starts, but it uses %s; "+
			"stop that one first, or name another data directory with --data", strings.Join(g.embedded, ", "), c.about)
	}
	if !errors.Is(err, errNoSystem) {
		return c, err
	}
	cfg := g.systemConfig()
	cfg.UI = ui
	sys, err := system.Start(ctx, cfg)
	if errors.Is(err, system.ErrLocked) { // another process has started it meanwhile
		if run, err := system.AwaitRunning(ctx, g.Data); err == nil && len(g.embedded) == 0 {
			return g.dial(ctx, run.URL, run.Token, fmt.Sprintf("the system that process %d runs on %s", run.PID, g.Data))
		}
	}
	if err != nil {
		return nil, err
	}
	b, err := sys.Connect(ctx, trust.OperatorService)
	if err != nil {
		sys.Stop()
		return nil, err
	}
	own, err := client.New(b, writer(), cfg.Log)
	if err != nil {
		sys.Stop()
		return nil, err
	}
	return &connection{own, sys, sys.About()}, nil
}

func (g *globals) dial(ctx context.Context, url, token, about string) (*connection, error) {
	log := g.logger()
	wait, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	cfg := bus.Config{URL: url, Name: "skandha", Token: token, CredsFile: g.Creds, Logger: log}
	if url == g.NATS { // that of a data directory is on this machine
		cfg.TLS.CA = g.CA
	}
	b, err := journal.Connect(wait, cfg)
	if why := certificate.Explain(err, cfg.TLS.CA); why != "" {
		return nil, fmt.Errorf("connecting to the bus %s: %s", telemetry.Redact(url), why)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return nil, fmt.Errorf("%w; start the system (skandha up, make run or make run-services), "+
			"or name another with --data or --nats", err)
	}
	if err != nil {
		return nil, err
	}
	c, err := client.New(b, writer(), log)
	if err != nil {
		b.Close()
		return nil, err
	}
	return &connection{c, nil, about}, nil
}

// fault returns what keeps the system from storing, if it can still report it.
func (c *connection) fault(ctx context.Context) string {
	if f := c.Journal.StorageFault(); f != nil {
		return f.Error()
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	var st coreapi.Status
	if err := c.Ask(ctx, coreapi.VerbStatus, nil, &st); err != nil {
		return "no core is reachable: " + err.Error()
	}
	for _, f := range st.Faults {
		if f.What == coreapi.FaultBus {
			return f.Message
		}
	}
	return ""
}

// page returns a one-time link to the system's page, wherever that runs. If there is no
// page, it returns [system.ErrNoUI] within seconds.
func (c *connection) page(ctx context.Context) (uibridge.Link, error) {
	if c.own != nil {
		return c.own.UILink(ctx)
	}
	var l uibridge.Link
	err := c.askBridge(ctx, uibridge.VerbLink, &l)
	return l, err
}

// pageStatus returns the status of the system's page, wherever that runs. Its errors
// are those of page.
func (c *connection) pageStatus(ctx context.Context) (uibridge.Status, error) {
	var st uibridge.Status
	err := c.askBridge(ctx, uibridge.VerbStatus, &st)
	return st, err
}

func (c *connection) askBridge(ctx context.Context, verb string, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	err := c.AskService(ctx, uibridge.ServiceName, verb, nil, answer)
	if errors.Is(err, nats.ErrNoResponders) {
		return system.ErrNoUI
	}
	return err
}

// close closes the connection, and stops the system if this process runs it.
func (c *connection) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if err := c.Journal.Drain(ctx); err != nil {
		c.Log.Debug("draining the connection", "error", err)
	}
	if c.own != nil {
		c.own.Stop()
	}
}

// writer returns the name under which this user's causes are stored.
func writer() subject.Writer {
	if u, err := user.Current(); err == nil {
		if w, err := subject.Parse[subject.Writer](subject.Encode(u.Username)); err == nil {
			return w
		}
	}
	return "cli"
}
