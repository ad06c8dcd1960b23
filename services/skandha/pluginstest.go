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
	"skandha.dev/pkg/strictjson"
	"skandha.dev/services/skandha/conformance"
	"skandha.dev/services/skandha/scaffold"
)

type pluginsNewCmd struct {
	Lang string `required:"" enum:"go,python,node,shell" placeholder:"go|python|node|shell" help:"Programming language."`
	Name string `arg:"" help:"Name of the plugin, an id."`
	Dir  string `placeholder:"DIR" help:"Directory to write it to. Default: one with the plugin's name."`
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
	for _, l := range nextSteps(n.Lang, n.Name) {
		fmt.Printf("  %-45s %s\n", l[0], l[1])
	}
	return nil
}

// nextSteps returns what to type in a new plugin's directory, and why.
func nextSteps(lang, name string) [][2]string {
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
		[2]string{"skandha plugins test -- " + of.run, "test it against the contract"},
		[2]string{`eval "$(skandha env ` + name + `)"`, "find the running system (skandha up)"},
		[2]string{of.run, "join it; Ctrl-C leaves"},
		[2]string{"skandha plugins", "see it, from another terminal"},
	)
}

// shellQuote quotes a path as one word of a shell command.
func shellQuote(s string) string {
	if strings.IndexFunc(s, func(r rune) bool {
		return r != '/' && r != '.' && r != '_' && r != '-' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') &&
			(r < 'a' || r > 'z')
	}) < 0 && s != "" {
		return s
	}
	return quoted(s)
}

type pluginsTestCmd struct {
	Call    []string      `placeholder:"TOOL=JSON" sep:"none" help:"Also call a tool with these arguments, e.g. --call 'house:rooms={\"floor\":1}'. May be repeated."`
	Case    []string      `type:"existingfile" sep:"none" placeholder:"FILE" help:"Also ask a hook this: JSON with the point and the data of schemas/hooks/envelope.json, or an array of these. The answer must match schemas/hooks/reply.json; --verbose shows it. May be repeated."`
	NoTools bool          `help:"Do not call tools."`
	Skip    []string      `placeholder:"CHECK" help:"Skip checks: a name, its beginning (hook) or a pattern (hook/*/garbage). May be repeated."`
	Within  time.Duration `default:"15s" help:"Time limit for registering, and for returning after an outage of the bus."`
	Leave   time.Duration `default:"15s" help:"Time limit for exiting when asked to."`
	Dir     string        `type:"existingdir" placeholder:"DIR" help:"Directory to start it in."`
	Verbose bool          `short:"v" help:"Show the plugin's output, and the notes of every check."`
	JSON    bool          `help:"Print the report as JSON."`

	Command []string `arg:"" passthrough:"partial" help:"Program of the plugin, with arguments. It is started with SKANDHA_NATS set."`
}

// Help implements kong's help provider.
func (pluginsTestCmd) Help() string {
	return `It starts a separate system and the plugin, uses everything that the plugin declares, restarts the bus, starts a second process of the plugin, and asks both to exit.

The tools of the plugin ARE called, with arguments generated from their schemas, and have their real effects. --no-tools calls none.

The checks, for --skip: hook/POINT/answers, …/repeats and …/garbage, the same for tool/NAME, provider/NAME, storage, storage/index, guide/NAME, heartbeat, turn, restart, replicas, leaves, listener/NAME, stays, subjects, replies, protocol. All other checks need registers and manifest.

Exit codes: 0 all checks passed, 1 a check failed, 2 the plugin could not be tested.`
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
			fmt.Printf("%sThe declared tools are called; --no-tools calls none.%s\n", st.dim, st.off)
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
	fmt.Fprintln(os.Stderr, "skandha: the plugin could not be tested: "+err.Error())
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
	if g.Log == "debug" { // at other levels the system mostly logs what the suite does to it
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
			return o, fmt.Errorf("--call %q: want TOOL={…}, with the arguments as a JSON object", line(c, 80))
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
		return nil, errors.New(strictjson.Explain(err))
	}
	return list, nil
}

// printResult prints one line, and what to do if the check failed.
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
		_, _ = fmt.Fprintf(out, "\nLast output of the plugin:\n%s%s%s\n", st.dim, clean(strings.TrimRight(r.Output, "\n")),
			st.off)
	}
	verdict := st.green + "passed" + st.off
	if !r.OK() {
		verdict = st.red + "failed" + st.off
	}
	name := orElse(string(r.Plugin), "The plugin")
	if r.Version != "" {
		name += " " + clean(r.Version)
	}
	_, _ = fmt.Fprintf(out, "\n%s %s: %d checks passed, %d failed, %d skipped, in %.1f s\n", name, verdict, r.Passed,
		r.Failed, r.Skipped, float64(r.TookMS)/1e3)
}

// prefixed writes each line after a prefix, without sequences that would move the cursor.
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
