package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"reflect"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/core/decide"
	"skandha.dev/services/core/loader"
	"skandha.dev/services/core/shell"
	"skandha.dev/services/internal/buildinfo"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/follow"
)

// sessionsCmd inspects sessions.
type sessionsCmd struct {
	List     sessionsListCmd     `cmd:"" default:"withargs" help:"List sessions, latest first."`
	Show     sessionsShowCmd     `cmd:"" help:"Show a session's conversation and state."`
	Tail     sessionsTailCmd     `cmd:"" help:"Show a session's log: causes and commits, from the beginning, also those in the archive; --follow also shows new ones."`
	Rebuild  sessionsRebuildCmd  `cmd:"" help:"Fold a session from the log, compare the result with the live state, and write it to the view."`
	Pause    sessionsPauseCmd    `cmd:"" help:"Start nothing new in a session until it is resumed. What runs is finished, inputs wait."`
	Resume   sessionsResumeCmd   `cmd:"" help:"Continue a paused session."`
	Delete   sessionsDeleteCmd   `cmd:"" help:"Delete a session. Its content is removed from the log and the archive after retention.undelete, a week by default."`
	Undelete sessionsUndeleteCmd `cmd:"" help:"Bring a deleted session back, while its content is still there."`
	Repair   sessionsRepairCmd   `cmd:"" help:"Open a session whose log is damaged, with what could be saved. Without --yes, only report what would be lost."`
}

type sessionsListCmd struct {
	Agent   string `short:"a" placeholder:"NAME" help:"Only this agent."`
	Limit   int    `short:"n" default:"20" help:"Maximum number of sessions."`
	After   string `placeholder:"CURSOR" help:"Continue after the page that returned this cursor."`
	Deleted bool   `help:"List the sessions that were deleted, instead of the others."`
	JSON    bool   `help:"Print JSON."`
}

// Run implements the command.
func (l *sessionsListCmd) Run(ctx context.Context, g *globals) error {
	var page coreapi.SessionsPage
	if err := ask(ctx, g, coreapi.VerbSessions, coreapi.SessionsQuery{Agent: l.Agent, Limit: l.Limit, After: l.After, Deleted: l.Deleted},
		&page); err != nil {
		return err
	}
	if l.JSON {
		return printJSON(os.Stdout, page, true)
	}
	if page.View != nil {
		fmt.Println(incomplete(*page.View))
	}
	if len(page.Sessions) == 0 {
		if page.View == nil && l.Deleted {
			fmt.Println("No deleted sessions.")
		} else if page.View == nil {
			fmt.Printf("No sessions yet. Start one with:  %s chat\n", buildinfo.Command())
		}
		return nil
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 4, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "AGENT\tSESSION\tTURNS\tSTATE\tUPDATED\tTITLE")
	for _, s := range below(page.Sessions) {
		_, _ = fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%s\t%s\n", s.Agent, s.Session, s.Turns, s.State, ago(s.Updated),
			strings.Repeat("  ", s.depth)+line(s.Title, 60))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if page.Next != "" {
		fmt.Printf("more: %s sessions list --after %s\n", buildinfo.Command(), page.Next)
	}
	return nil
}

// nested is a session of a listing, and how many sessions are above it.
type nested struct {
	coreapi.SessionRow
	depth int
}

// below returns the sessions in their order, but each that works for another one follows that one, if
// it is listed.
func below(all []coreapi.SessionRow) []nested {
	known := map[string]bool{}
	for _, s := range all {
		known[s.Ref.String()] = true
	}
	out := make([]nested, 0, len(all))
	var add func(above string, depth int)
	add = func(above string, depth int) {
		for _, s := range all {
			if s.Above == above || depth == 0 && !known[s.Above] {
				out = append(out, nested{s, depth})
				add(s.Ref.String(), depth+1)
			}
		}
	}
	add("", 0)
	return out
}

// incomplete returns why sessions may be missing in a list.
func incomplete(v coreapi.View) string {
	switch v.State {
	case coreapi.ViewRefilling:
		return fmt.Sprintf("The view is being refilled (%s of %s); sessions may be missing.",
			grouped(v.Done), grouped(v.Sessions))
	case coreapi.ViewUnavailable:
		return "The view is unavailable: " + line(v.Error, 200)
	}
	return "The view has not been compared with the log yet; sessions may be missing."
}

// one is the arguments of commands about one session.
type one struct {
	Session string `arg:"" help:"Session."`
	Agent   string `short:"a" default:"main" help:"Agent."`
}

func (o one) ref() (subject.Ref, error) { return subject.ParseRef(o.Agent, o.Session) }

type sessionsShowCmd struct {
	one
	JSON bool `help:"Print the whole state as JSON."`
}

// Run implements the command.
func (s *sessionsShowCmd) Run(ctx context.Context, g *globals) error {
	ref, err := s.ref()
	if err != nil {
		return err
	}
	var info shell.SessionInfo
	if err := ask(ctx, g, coreapi.VerbSession, ref, &info); err != nil {
		return err
	}
	if s.JSON {
		fmt.Println(marshalIndent(info))
		return nil
	}
	st := info.State
	fmt.Printf("%s at revision %d, digest %s\n", ref, st.Rev, info.Digest)
	fmt.Printf("%s; %s, %d failed; %d tokens in, %d out\n", st.UI, count(st.Turns, "turn"), st.Failed,
		st.Usage.InputTokens, st.Usage.OutputTokens)
	if st.Locked != "" {
		fmt.Println("locked: " + clean(st.LockedWhy()))
	}
	fmt.Println()
	style := stylesFor(os.Stdout)
	for _, e := range st.Window {
		var m provider.Message
		if json.Unmarshal(e.Msg, &m) != nil {
			continue
		}
		printTalk(style, m)
	}
	return nil
}

func printTalk(s styles, m provider.Message) {
	switch m.Role {
	case provider.RoleUser:
		fmt.Printf("%s> %s%s\n", s.bold, clean(m.Text), s.off)
	case provider.RoleTool:
		fmt.Printf("%s· %s → %s%s\n", s.dim, m.Tool, line(m.Text, 160), s.off)
	default:
		for _, c := range m.ToolCalls {
			fmt.Printf("%s· %s %s%s\n", s.dim, c.Tool, line(string(c.Args), 160), s.off)
		}
		if m.Text != "" {
			fmt.Println(clean(m.Text))
		}
	}
}

type sessionsTailCmd struct {
	one
	Follow bool `short:"f" help:"Continue with new messages."`
	JSON   bool `help:"Print every message of the log as one line of JSON."`
}

// Run implements the command.
func (t *sessionsTailCmd) Run(ctx context.Context, g *globals) error {
	ref, err := t.ref()
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	c, err := g.connectRunning(ctx)
	if err != nil {
		return err
	}
	defer c.close()
	last := uint64(0)
	st := stylesFor(os.Stdout)
	for m, err := range c.past(ctx, ref) {
		if err != nil {
			return err
		}
		if err := t.print(st, ref, m.Seq, m.Subject, m.Time, m.Data); err != nil {
			return err
		}
		last = m.Seq
	}
	if last == 0 {
		return fmt.Errorf("no session %s", ref)
	}
	if !t.Follow {
		return nil
	}
	items, err := c.FollowFrom(ctx, ref, follow.Position{Commit: last, Index: 1 << 30})
	if err != nil {
		return err
	}
	for i := range items {
		if i.Delta != nil || i.Output != nil {
			continue
		}
		if t.JSON {
			err = printJSON(os.Stdout, i.Event, false)
		} else {
			if i.Commit != last {
				last = i.Commit
				t.printHooks(ctx, c, st, ref, last)
			}
			printEvent(os.Stdout, st, i.Event, false)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (t *sessionsTailCmd) print(st styles, ref subject.Ref, seq uint64, subj string, at time.Time, data []byte) error {
	if t.JSON {
		raw := json.RawMessage(data)
		if !json.Valid(data) {
			raw, _ = json.Marshal(string(data)) // a string always encodes
		}
		return printJSON(os.Stdout, map[string]any{"sequence": seq, "subject": subj, "time": at, "data": raw}, false)
	}
	if subj != ref.Commit() {
		printMessage(os.Stdout, st, seq, subj, at, data)
		return nil
	}
	c, err := event.DecodeCommit(ref, data)
	if err != nil {
		return fmt.Errorf("commit %d: %w", seq, err)
	}
	fmt.Println(commitLine(st, seq, c.Header))
	const indent = "         "
	printVerdicts(os.Stdout, st, indent, c.Header.Now, "", c.Header.Hooks)
	for _, e := range c.Events {
		fmt.Print(indent)
		printEvent(os.Stdout, st, e, false)
	}
	return nil
}

// printHooks shows what hooks did in a followed commit; with --json, only commits of
// the log have it.
func (t *sessionsTailCmd) printHooks(ctx context.Context, c *connection, st styles, ref subject.Ref, seq uint64) {
	m, err := c.Journal.Message(ctx, seq)
	if err != nil {
		return // the verdicts are an extra: only the events must not be missing
	}
	if commit, err := event.DecodeCommit(ref, m.Data); err == nil {
		printVerdicts(os.Stdout, st, "", commit.Header.Now, "", commit.Header.Hooks)
	}
}

func triggerOf(t event.Trigger) string {
	switch {
	case t.Sequence > 0:
		return fmt.Sprintf(" %d", t.Sequence)
	case t.Call != "":
		return " to " + t.Call
	}
	return ""
}

type sessionsRebuildCmd struct {
	Session string `arg:"" optional:"" help:"Session."`
	Agent   string `short:"a" default:"main" help:"Agent."`
	All     bool   `help:"Rebuild all sessions and statistics, in the background; skandha status shows the progress."`
	Archive bool   `help:"Begin with the session's first commit, which may have left the log for the archive, and check every checkpoint."`
}

// Validate implements kong's interface.
func (r *sessionsRebuildCmd) Validate() error {
	switch {
	case r.All && r.Archive:
		return errors.New("--all and --archive exclude each other")
	case r.All && r.Session != "":
		return errors.New("--all and a session exclude each other")
	case !r.All && r.Session == "":
		return errors.New("no session given; name one, or use --all")
	}
	return nil
}

// Run implements the command.
func (r *sessionsRebuildCmd) Run(ctx context.Context, g *globals) error {
	if r.All {
		if err := administer(ctx, g, coreapi.VerbRefill, coreapi.RefillQuery{All: true, Caller: writer()}, &coreapi.RefillAnswer{}); err != nil {
			return err
		}
		fmt.Println("Rebuilding all sessions in the background. skandha status shows the progress.")
		return nil
	}
	ref, err := subject.ParseRef(r.Agent, r.Session)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	c, err := g.connectRunning(ctx)
	if err != nil {
		return err
	}
	defer c.close()
	begin := time.Now()
	rebuilt, err := r.fold(ctx, c, ref)
	if err != nil {
		gaps, lookErr := lookFor(ctx, c.Journal, ref)
		for _, g := range gaps {
			fmt.Println(g)
		}
		return errors.Join(fmt.Errorf("rebuilding %s: %w; %s sessions repair %s reports what can be saved",
			ref, err, buildinfo.Command(), ref.Session), lookErr)
	}
	if rebuilt.Rev == 0 {
		return fmt.Errorf("no session %s", ref)
	}
	took := time.Since(begin)
	var live shell.SessionInfo
	if err := c.Ask(ctx, coreapi.VerbSession, ref, &live); err != nil {
		return err
	}
	fmt.Printf("rebuilt from the log  revision %d  digest %s  (%s in %.1f ms)\n", rebuilt.Rev, rebuilt.Digest,
		count(rebuilt.Commits, "commit"), float64(took.Microseconds())/1e3)
	fmt.Printf("live                  revision %d  digest %s\n", live.State.Rev, live.Digest)
	if live.State.Rev != rebuilt.Rev {
		return errors.New("the session has changed meanwhile; try again")
	}
	if same, err := sameState(rebuilt, live.State); err != nil || !same {
		return errors.Join(errors.New("the states DIFFER"), err)
	}
	fmt.Println("identical")
	var written coreapi.RefillAnswer
	if err := c.Administer(ctx, coreapi.VerbRefill, coreapi.RefillQuery{Agent: ref.Agent, Session: ref.Session, Caller: writer()},
		&written); err != nil {
		return fmt.Errorf("writing it to the view: %w", err)
	}
	fmt.Printf("written to the view   revision %d\n", written.Revision)
	return nil
}

// fold folds the session from the log, or with --archive from its first commit.
func (r *sessionsRebuildCmd) fold(ctx context.Context, c *connection, ref subject.Ref) (*decide.State, error) {
	if !r.Archive {
		return (&loader.Loader{Bus: c.Journal, Log: c.Log}).Rebuild(ctx, ref)
	}
	replay := loader.NewReplay(ref)
	for m, err := range c.past(ctx, ref) {
		if err == nil {
			err = replay.Add(m)
		}
		if err != nil {
			return replay.State(), err
		}
	}
	return replay.State(), nil
}

func sameState(a, b *decide.State) (bool, error) {
	x, err := a.Snapshot()
	if err != nil {
		return false, err
	}
	y, err := b.Snapshot()
	return reflect.DeepEqual(x, y), err
}
