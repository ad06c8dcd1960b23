package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"text/tabwriter"
	"time"

	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/skandha/system"
	"skandha.dev/services/toolrunner/mcp"
)

// mcpCmd manages the MCP servers whose tools agents can use.
type mcpCmd struct {
	List   mcpListCmd   `cmd:"" default:"withargs" help:"List the MCP servers, and how the connections to them are."`
	Show   mcpShowCmd   `cmd:"" help:"Show a server: its tools, what of it is not offered and why, and the last error."`
	Add    mcpAddCmd    `cmd:"" help:"Add a server, at a URL or as a command after --; also while the system runs. A person is asked about each call of its tools."`
	Remove mcpRemoveCmd `cmd:"" help:"Remove a server that was added."`
}

// added is the file of servers that were added.
func (g *globals) added() string { return filepath.Join(g.Data, mcp.AddedFile) }

type mcpAddCmd struct {
	Name    string            `arg:"" help:"What its tools' names begin with."`
	Command []string          `arg:"" optional:"" help:"After --: the program and its arguments. It runs in a sandbox without network."`
	URL     string            `name:"url" placeholder:"URL" help:"Of the server (streamable HTTP), instead of a command."`
	Bearer  string            `placeholder:"REF" help:"Token of the server at the URL: env:NAME or file:PATH."`
	Header  map[string]string `placeholder:"NAME=REF" help:"Header of requests to the URL; env:NAME or file:PATH for secrets."`
	Env     map[string]string `placeholder:"NAME=REF" help:"Variable of the command; env:NAME or file:PATH for secrets."`
	Network bool              `help:"Let the command reach the network. Programs that install others, such as npx and uvx, need it, so it is on for them."`
	Host    bool              `help:"Run the command like any program of yours, not in a sandbox: it can read and change your files."`
	Read    []string          `placeholder:"DIR" help:"Directory that the command may read in the sandbox."`
	Trust   mcp.Trust         `enum:"none,annotations" default:"none" help:"annotations: believe the server which of its tools only read, so that nobody is asked about them."`
	Wait    time.Duration     `default:"2m" help:"How long to wait for the connection, if the system runs. 0: do not wait."`
}

// launchers are programs that install what they run.
var launchers = []string{"bunx", "npx", "pipx", "uvx"}

func (a *mcpAddCmd) server() (s mcp.Server, note string) {
	s = mcp.Server{
		URL: a.URL, Token: a.Bearer, Headers: a.Header, Command: a.Command, Env: a.Env, Network: a.Network, Read: a.Read,
	}
	if a.Trust != mcp.TrustNone {
		s.Trust = a.Trust
	}
	if a.Host {
		s.Isolation = mcp.Host
	} else if len(a.Command) > 0 && !a.Network && slices.Contains(launchers, filepath.Base(a.Command[0])) {
		s.Network = true
		note = filepath.Base(a.Command[0]) + " installs what it runs, so the server may reach the network."
	}
	return s, note
}

// Run implements the command.
func (a *mcpAddCmd) Run(ctx context.Context, g *globals) error {
	if err := mcp.CheckName(a.Name); err != nil {
		return err
	}
	s, note := a.server()
	if err := s.Validate(); err != nil {
		return err
	}
	if err := os.MkdirAll(g.Data, 0o700); err != nil {
		return err
	}
	for _, dir := range s.Read {
		if err := mcp.CheckRead(dir, []string{g.Data}, cmp.Or(g.Workspace, filepath.Join(g.Data, "workspace"))); err != nil {
			return fmt.Errorf("--read: %w", err)
		}
	}
	if err := mcp.Add(g.added(), a.Name, s); err != nil {
		return err
	}
	if note != "" {
		fmt.Println(note)
	}
	if a.Wait <= 0 {
		fmt.Printf("Added %s. A system that runs connects to it within seconds; see: skandha mcp show %[1]s\n", a.Name)
		return nil
	}
	st, err := g.awaitServer(ctx, a.Name, a.Wait)
	if errors.Is(err, errNoSystem) {
		fmt.Printf("Added %s. It is connected when the system on %s runs.\n", a.Name, g.Data)
		return nil
	}
	if err != nil {
		return err
	}
	fmt.Printf("Added %s: %s.\n", a.Name, count(len(st.Tools), "tool"))
	printServer(st)
	return nil
}

// awaitServer waits until the running system is connected to a server.
func (g *globals) awaitServer(ctx context.Context, name string, limit time.Duration) (st mcp.State, err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		list, err := g.mcpServers(ctx)
		if err != nil && ctx.Err() == nil {
			return st, err
		}
		for _, s := range list {
			if s.Name == name {
				st = s
			}
		}
		if st.Connected {
			return st, nil
		}
		select {
		case <-ctx.Done():
			return st, fmt.Errorf("%s was added, but is not connected after %s: %s; the system keeps trying; remove it with: skandha mcp remove %s",
				name, limit, cmp.Or(clean(st.Error), "it is starting"), name)
		case <-time.After(time.Second):
		}
	}
}

// mcpServers asks a tool runner of the running system about its servers.
func (g *globals) mcpServers(ctx context.Context) ([]mcp.State, error) {
	var st coreapi.Status
	if err := ask(ctx, g, coreapi.VerbStatus, nil, &st); err != nil {
		return nil, err
	}
	if len(st.Agents) == 0 {
		return nil, errors.New("the system has no agent")
	}
	var r tool.Result
	q := tool.InternalCall{Agent: st.Agents[0], Session: "mcp", Caller: writer(), Tool: mcp.StateTool}
	if err := ask(ctx, g, coreapi.VerbCall+"."+string(writer()), q, &r); err != nil {
		return nil, err
	}
	if r.Error != nil {
		return nil, r.Error
	}
	var list []mcp.State
	return list, json.Unmarshal(r.Data, &list)
}

type mcpListCmd struct {
	JSON bool `help:"Print JSON."`
}

// Run implements the command.
func (l *mcpListCmd) Run(ctx context.Context, g *globals) error {
	list, err := g.mcpServers(ctx)
	if err != nil {
		return err
	}
	if l.JSON {
		return printJSON(os.Stdout, list, true)
	}
	if len(list) == 0 {
		fmt.Println("There are no MCP servers. Add one with: skandha mcp add NAME -- COMMAND, or --url URL.")
		return nil
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "NAME\tBY\tTOOLS\tSTATE")
	for _, s := range list {
		by := s.Transport
		if s.Isolation != "" {
			by += ", " + s.Isolation
		}
		_, _ = fmt.Fprintf(w, "%s\t%s\t%d\t%s\n", s.Name, by, len(s.Tools), line(state(s), 100))
	}
	return w.Flush()
}

func state(s mcp.State) string {
	switch {
	case s.Connected && len(s.LeftOut) > 0:
		return fmt.Sprintf("connected, %d not offered", len(s.LeftOut))
	case s.Connected:
		return "connected"
	}
	return clean(cmp.Or(s.Error, "connecting"))
}

type mcpShowCmd struct {
	Name string `arg:"" help:"Of the server."`
	JSON bool   `help:"Print JSON."`
}

// Run implements the command.
func (c *mcpShowCmd) Run(ctx context.Context, g *globals) error {
	list, err := g.mcpServers(ctx)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(list, func(s mcp.State) bool { return s.Name == c.Name })
	if i < 0 {
		return fmt.Errorf("no MCP server %s; list them with: skandha mcp", c.Name)
	}
	if c.JSON {
		return printJSON(os.Stdout, list[i], true)
	}
	fmt.Printf("%s: %s\n", c.Name, state(list[i]))
	printServer(list[i])
	return nil
}

func printServer(s mcp.State) {
	if s.Server != "" {
		fmt.Printf("It calls itself %s and speaks protocol %s.\n", line(s.Server, 100), line(s.Protocol, 100))
	}
	for _, name := range s.Tools {
		fmt.Println("  " + clean(name))
	}
	if len(s.LeftOut) > 0 {
		fmt.Println("Not offered:")
	}
	for _, why := range s.LeftOut {
		fmt.Println("  " + line(why, 500))
	}
	for _, w := range s.Warnings {
		fmt.Println("Warning: " + line(w, 1000))
	}
}

type mcpRemoveCmd struct {
	Name string `arg:"" help:"Of the server."`
	Home bool   `help:"Also delete its home, where a command in the sandbox keeps its files; also of a server that was removed before."`
}

// Run implements the command.
func (c *mcpRemoveCmd) Run(ctx context.Context, g *globals) error {
	if err := mcp.CheckName(c.Name); err != nil {
		return err
	}
	home := mcp.Home(system.StateDir(g.Data), c.Name)
	_, statErr := os.Stat(home)
	kept := statErr == nil
	err := mcp.Remove(g.added(), c.Name)
	switch before := errors.Is(err, mcp.ErrNone) && c.Home && kept; {
	case err != nil && !before:
		return fmt.Errorf("%w; those of the configuration file are removed there", err)
	case !before:
		fmt.Printf("Removed %s.\n", c.Name)
	}
	switch {
	case !kept:
		return nil
	case !c.Home:
		fmt.Printf("Its home stays in %s; to delete it: skandha mcp remove %s --home\n", home, c.Name)
		return nil
	}
	if err := g.awaitGone(ctx, c.Name); err != nil {
		return fmt.Errorf("its home stays in %s: %w", home, err)
	}
	if err := os.RemoveAll(home); err != nil {
		return err
	}
	fmt.Printf("Deleted %s.\n", home)
	return nil
}

// leaveWithin is how long a running system may take to end a server that was removed.
const leaveWithin = 30 * time.Second

// awaitGone waits until the running system, if there is one, does not have a server any more.
func (g *globals) awaitGone(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, leaveWithin)
	defer cancel()
	for {
		list, err := g.mcpServers(ctx)
		listed := slices.ContainsFunc(list, func(s mcp.State) bool { return s.Name == name })
		if err == nil && !listed || errors.Is(err, errNoSystem) {
			return nil
		}
		select {
		case <-ctx.Done():
			return cmp.Or(err, errors.New("the system still has a server of this name; if it is one of the configuration file, remove it there"))
		case <-time.After(200 * time.Millisecond):
		}
	}
}
