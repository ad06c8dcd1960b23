package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"skandha.dev/pkg/hook"
	"skandha.dev/services/internal/jsonerror"
	"skandha.dev/services/skandha/conformance"
	"skandha.dev/services/skandha/scaffold"
)

type pluginsNewCmd struct {
	Lang string `required:"" enum:"go,python,node,shell" placeholder:"go|python|node|shell" help:"The language."`
	Name string `arg:"" help:"The plugin's name, an id."`
	Dir  string `placeholder:"DIR" help:"Where it is written. Default: a directory of the plugin's name."`
}

// Run implements the command.
func (n *pluginsNewCmd) Run() error {
	dir := orElse(n.Dir, n.Name)
	files, err := scaffold.Write(dir, n.Lang, n.Name)
	if err != nil {
		return err
	}
	for _, f := range files {
		if rel, err := filepath.Rel(dir, f); err == nil && filepath.IsAbs(f) == filepath.IsAbs(dir) {
			f = rel
		}
		fmt.Println("wrote " + filepath.Join(dir, f))
	}
	fmt.Println("\nNext:")
	fmt.Println("  cd " + shellQuote(dir))
	for _, l := range nextSteps(n.Lang) {
		fmt.Printf("  %-45s %s\n", l[0], l[1])
	}
	return nil
}

// nextSteps are what to type in a new plugin's directory, and why.
func nextSteps(lang string) [][2]string {
	of := map[string]struct{ prepare, test, run string }{
		"go":     {"go work init . PATH/TO/skandha/pkg", "go test ./...", "go run ."},
		"python": {"", "python3 -m unittest", "python3 plugin.py"},
		"node":   {"npm install", "npm test", "node index.mjs"},
		"shell":  {"", "./test.sh", "./plugin.sh"},
	}[lang]
	var out [][2]string
	if of.prepare != "" {
		out = append(out, [2]string{of.prepare, "once, see README.md"})
	}
	return append(
		out,
		[2]string{of.test, "its own test"},
		[2]string{"skandha plugins test -- " + of.run, "hold it against the contract"},
		[2]string{`eval "$(skandha env)"`, "find the system that runs (skandha up)"},
		[2]string{of.run, "join it; Ctrl-C leaves"},
		[2]string{"skandha plugins", "see it, from another terminal"},
	)
}

// shellQuote makes a path one word for a shell.
func shellQuote(s string) string {
	if strings.IndexFunc(s, func(r rune) bool {
		return r != '/' && r != '.' && r != '_' && r != '-' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
	}) < 0 && s != "" {
		return s
	}
	return quoted(s)
}

type pluginsTestCmd struct {
	Call    []string      `placeholder:"TOOL=JSON" sep:"none" help:"Call a tool with these arguments, too, e.g. --call 'house:rooms={\"floor\":1}'. May be repeated."`
	Case    []string      `type:"existingfile" sep:"none" placeholder:"FILE" help:"Ask a hook this, too: JSON with the point and the data of schemas/hooks/envelope.json, or an array of these. The answer must fit schemas/hooks/reply.json; --verbose shows it. May be repeated."`
	NoTools bool          `help:"Call no tool."`
	Skip    []string      `placeholder:"CHECK" help:"Leave out checks: a name, what it begins with (hook), or a pattern (hook/*/garbage). May be repeated."`
	Within  time.Duration `default:"15s" help:"How long it may take to register, and to be back when the bus was away."`
	Leave   time.Duration `default:"15s" help:"How long it may take to end when it is told to."`
	Dir     string        `type:"existingdir" placeholder:"DIR" help:"Start it here."`
	Verbose bool          `short:"v" help:"Show the plugin's own output, and every check's notes."`
	JSON    bool          `help:"Print the report as JSON."`

	Command []string `arg:"" passthrough:"partial" help:"The plugin's program and its arguments. It is started with SKANDHA_NATS set."`
}

// Help implements kong's help provider.
func (pluginsTestCmd) Help() string {
	return `It starts the plugin against a system of its own, asks everything that it declares, stops the bus under it, starts a second process beside it, and tells both to end.

The tools of the plugin ARE called, with arguments made from their schemas: whatever they do, they do. --no-tools calls none.

The checks, for --skip: hook/POINT/answers, …/repeats and …/garbage, the same of tool/NAME, provider/NAME, storage, guide/NAME, heartbeat, turn, restart, replicas, leaves, listener/NAME, stays, subjects, replies, protocol. Without registers and manifest there is nothing to check.

The exit code: 0 every check passed, 1 one failed, 2 it could not be tried.`
}

// Run implements the command.
func (t *pluginsTestCmd) Run(ctx context.Context, g *globals) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	o, err := t.options(g)
	if err != nil {
		return couldNot(err)
	}
	st := stylesFor(os.Stdout)
	if !t.JSON {
		if !t.NoTools {
			fmt.Printf("%sThe tools that it declares are called; --no-tools calls none.%s\n", st.dim, st.off)
		}
		o.Done = func(r conformance.Result) { printResult(os.Stdout, st, r, t.Verbose) }
	}
	report, err := conformance.Run(ctx, o)
	if err != nil {
		return couldNot(err)
	}
	if t.JSON {
		err = printJSON(os.Stdout, report, true)
	} else {
		printReport(os.Stdout, st, report, t.Verbose)
	}
	if err == nil && !report.OK() {
		err = exitFailed
	}
	return err
}

func couldNot(err error) error {
	fmt.Fprintln(os.Stderr, "skandha: the plugin could not be tried: "+err.Error())
	return exitUsage
}

func (t *pluginsTestCmd) options(g *globals) (conformance.Options, error) {
	o := conformance.Options{
		Command: t.Command, Dir: t.Dir, Within: t.Within, Leave: t.Leave, NoTools: t.NoTools, Skip: t.Skip,
		Calls: map[string][]json.RawMessage{},
	}
	if len(o.Command) > 0 && o.Command[0] == "--" {
		o.Command = o.Command[1:]
	}
	if g.Log == "debug" { // what the system logs at its usual levels is about what the suite itself does to it
		o.Log = g.logger()
	}
	if t.Verbose {
		o.Output = &prefixed{to: os.Stderr, prefix: "plugin| "}
	}
	for _, file := range t.Case {
		cases, err := readCases(file)
		if err != nil {
			return o, fmt.Errorf("--case %s: %w", file, err)
		}
		o.Cases = append(o.Cases, cases...)
	}
	for _, c := range t.Call {
		name, args, ok := strings.Cut(c, "=")
		if !ok || !json.Valid([]byte(args)) {
			return o, fmt.Errorf("--call %q: want TOOL={…}, the arguments as a JSON object", line(c, 80))
		}
		o.Calls[name] = append(o.Calls[name], json.RawMessage(args))
	}
	return o, nil
}

func readCases(file string) (list []hook.Envelope, err error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	if b = bytes.TrimSpace(b); !bytes.HasPrefix(b, []byte("[")) {
		b = slices.Concat([]byte("["), b, []byte("]"))
	}
	if err := json.Unmarshal(b, &list); err != nil {
		return nil, errors.New(jsonerror.Explain(err))
	}
	return list, nil
}

// printResult is one line, and what to do if it failed.
func printResult(out io.Writer, st styles, r conformance.Result, verbose bool) {
	mark, text := st.green+"ok  "+st.off, line(r.What, 200)
	switch r.Status {
	case conformance.Failed:
		mark = st.red + "FAIL" + st.off
	case conformance.Skipped:
		mark, text = st.yellow+"–   "+st.off, wrap("skipped: "+line(r.Why, 300), 47, "\n"+strings.Repeat(" ", 33))
	case conformance.Passed:
	}
	_, _ = fmt.Fprintf(out, "%s  %s%-26s%s %s%s%s\n", mark, st.bold, line(r.Check, 60), st.off, st.dim, text, st.off)
	for _, f := range r.Findings {
		for _, l := range [][2]string{{"expected", f.Expected}, {"seen", f.Seen}, {"to do", f.Advice}} {
			_, _ = fmt.Fprintf(out, "        %-8s  %s\n", l[0], wrap(line(l[1], 600), 62, "\n                  "))
		}
	}
	if verbose || r.Status == conformance.Failed {
		for _, n := range r.Notes {
			_, _ = fmt.Fprintf(out, "        %snote      %s%s\n", st.dim, wrap(line(n, 400), 62, "\n                  "), st.off)
		}
	}
}

func printReport(out io.Writer, st styles, r *conformance.Report, verbose bool) {
	if r.Output != "" && !verbose {
		_, _ = fmt.Fprintf(out, "\nThe last that the plugin wrote:\n%s%s%s\n", st.dim, clean(strings.TrimRight(r.Output, "\n")), st.off)
	}
	verdict := st.green + "passed" + st.off
	if !r.OK() {
		verdict = st.red + "failed" + st.off
	}
	name := orElse(string(r.Plugin), "The plugin")
	if r.Version != "" {
		name += " " + clean(r.Version)
	}
	_, _ = fmt.Fprintf(out, "\n%s %s: %d checks passed, %d failed, %d skipped, in %.1f s\n", name, verdict, r.Passed, r.Failed, r.Skipped, float64(r.TookMS)/1e3)
}

// prefixed writes each line after a prefix, without what would move the cursor.
type prefixed struct {
	to     io.Writer
	prefix string
	rest   string
}

func (p *prefixed) Write(b []byte) (int, error) {
	p.rest += string(b)
	for {
		l, rest, ok := strings.Cut(p.rest, "\n")
		if !ok {
			return len(b), nil
		}
		p.rest = rest
		if _, err := fmt.Fprintln(p.to, p.prefix+clean(l)); err != nil {
			return 0, err
		}
	}
}
