// Command skandha runs, uses and inspects a Skandha system.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"

	"skandha.dev/pkg/telemetry"
	"skandha.dev/services/internal/process"
)

// cli is the command line. Each command is a struct with a Run method.
type cli struct {
	globals

	Up        upCmd        `cmd:"" help:"Run the whole system in this process: embedded NATS and SQLite, core, provider, tool runner, sandbox, web page."`
	Chat      chatCmd      `cmd:"" default:"1" help:"Talk to an agent; if no system runs, start one that ends with the conversation."`
	ACP       acpCmd       `cmd:"" name:"acp" help:"Serve an editor that speaks the Agent Client Protocol on standard input and output; if no system runs, start one that ends with the editor."`
	UI        uiCmd        `cmd:"" name:"ui" help:"Print a one-time link to the web page, or open it."`
	Ask       askCmd       `cmd:"" help:"Ask an agent one question; if no system runs, start one for it. Exit codes: 0 answered, 1 failed, 3 refused, 4 timed out."`
	Tools     toolsCmd     `cmd:"" help:"List the tools with their statistics."`
	Providers providersCmd `cmd:"" help:"Show the language models: reachable or not, breakers, prices, models, the budget."`
	Guides    guidesCmd    `cmd:"" help:"List the guides that agents can name; show one, or check a file."`
	Skills    skillsCmd    `cmd:"" help:"List the skills that agents can load."`
	Plugins   pluginsCmd   `cmd:"" help:"Manage plugins; write and test them."`
	Hooks     hooksCmd     `cmd:"" help:"Show the hook points: which plugins answer, and how; run hook scripts of other agents."`
	Sessions  sessionsCmd  `cmd:"" help:"List sessions; show, follow, rebuild or repair one."`
	Outbox    outboxCmd    `cmd:"" help:"List, send again and drop messages to people that are not delivered."`
	Schedules schedulesCmd `cmd:"" help:"List, show and delete what agents have scheduled."`
	MCP       mcpCmd       `cmd:"" name:"mcp" help:"Add, list, show and remove MCP servers, whose tools agents can use."`
	Listeners listenersCmd `cmd:"" help:"List the listeners; switch cameras and microphones on and off."`
	Memory    memoryCmd    `cmd:"" help:"List, search, correct and delete what an agent remembers."`
	Audit     auditCmd     `cmd:"" help:"List who did, approved, refused and revoked what; verify and export it."`
	Artifacts artifactsCmd `cmd:"" help:"List and fetch the files that tools handed over; store files for a session."`
	Tail      tailCmd      `cmd:"" help:"Show the events of all sessions as they happen."`
	Status    statusCmd    `cmd:"" help:"Show the running cores and executors, and the page's address."`
	Backup    backupCmd    `cmd:"" help:"Write everything that a system keeps to one file, also while it runs."`
	Restore   restoreCmd   `cmd:"" help:"Restore such a file into an empty system. Exit codes: 0 restored, 1 failed, 3 refused because something is there."`
	TLS       tlsCmd       `cmd:"" name:"tls" help:"Make, renew and show the certificates with which the bus speaks TLS."`
	Env       envCmd       `cmd:"" help:"Print the environment with which a plugin or listener in another process joins: eval \"$(skandha env NAME)\"."`
	Secrets   secretsCmd   `cmd:"" help:"Write the keys of the services of a system of separate processes."`
	Bench     benchCmd     `cmd:"" passthrough:"" help:"Measure this machine against the budgets (skandha-bench)."`
	Config    configCmd    `cmd:"" name:"config" help:"Check a configuration file."`
	Doctor    doctorCmd    `cmd:"" help:"Check what is installed and running, and how to fix what is not."`
	Server    serverCmd    `cmd:"" help:"Run only the NATS server, for separate services."`
	Docs      docsCmd      `cmd:"" help:"List the pages of the documentation, or print one."`
	Version   versionCmd   `cmd:"" help:"Print the version."`
}

// exit is an error that carries an exit code and has been reported already.
type exit int

func (e exit) Error() string { return fmt.Sprintf("exit %d", int(e)) }

// The exit codes other than 0.
const (
	exitFailed  = exit(1)
	exitUsage   = exit(2)
	exitRefused = exit(3)
	exitTimeout = exit(4)
)

func main() {
	var c cli
	parser := kong.Must(&c, kong.Name("skandha"), kong.Vars{"data": defaultData()},
		kong.Description("An event-driven runtime for AI agents on NATS. Without a command: skandha chat."),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, FlagsLast: true}), kong.Help(shortHelp))
	k, err := parser.Parse(os.Args[1:])
	if err != nil {
		os.Exit(process.Usage("skandha", err))
	}
	c.given, c.embedded = given(k)
	c.find(k.Command())
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	k.BindTo(ctx, (*context.Context)(nil))
	err = k.Run(&c.globals)
	var code exit
	switch {
	case err == nil:
	case errors.As(err, &code):
		stop()
		os.Exit(int(code)) //nolint:gocritic // stop has run
	default:
		fmt.Fprintln(os.Stderr, "skandha: "+telemetry.Redact(err.Error()))
		stop()
		os.Exit(int(exitFailed))
	}
}
