package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/core/decide"
	"skandha.dev/services/core/shell"
	"skandha.dev/services/internal/buildinfo"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/turn"
)

// sessionsRepairCmd opens a session whose log is damaged. It sends the command /repair
// to core, since only core writes commits.
type sessionsRepairCmd struct {
	one
	Yes  bool `short:"y" help:"Repair it. What is not saved is lost for good."`
	JSON bool `help:"Print JSON."`
}

// repairReport is what --json prints.
type repairReport struct {
	subject.Ref
	Damaged  bool     `json:"damaged"`
	Reason   string   `json:"reason,omitempty"`
	Locked   bool     `json:"locked"`                   // core has locked it and recorded what was saved
	Saved    uint64   `json:"saved_revision,omitempty"` // 0 if nothing was saved, or it is not locked yet
	Turns    int      `json:"saved_turns,omitempty"`
	Gaps     []string `json:"gaps,omitempty"` // commits of the log that cannot be read or do not follow
	Repaired bool     `json:"repaired"`
	Answer   string   `json:"answer,omitempty"`
}

// Run implements the command.
func (r *sessionsRepairCmd) Run(ctx context.Context, g *globals) error {
	ref, err := r.ref()
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
	report, err := r.look(ctx, c, ref)
	if err != nil {
		return err
	}
	if report.Damaged && r.Yes {
		if report.Answer, err = c.runCommand(ctx, ref, "repair"); err != nil {
			return err
		}
		report.Repaired = true
	}
	if r.JSON {
		return printJSON(os.Stdout, report, true)
	}
	report.print(os.Stdout)
	return nil
}

// look returns what is wrong with the session, and what was saved of it.
func (r *sessionsRepairCmd) look(ctx context.Context, c *connection, ref subject.Ref) (repairReport, error) {
	report := repairReport{Ref: ref}
	gaps, err := lookFor(ctx, c.Journal, ref)
	if err != nil {
		return report, err
	}
	report.Gaps = gaps
	var info shell.SessionInfo
	err = c.Ask(ctx, coreapi.VerbSession, ref, &info)
	switch {
	case errors.Is(err, bus.ErrConflict):
		report.Damaged, report.Reason = true, err.Error()
	case err != nil:
		return report, err
	case info.State.Damage != nil:
		d := info.State.Damage
		report.Damaged, report.Locked, report.Reason, report.Saved, report.Turns = true, true, d.Why, d.Rev, d.Turns
	case info.State.Locked != "":
		report.Reason = "it is locked, but its log is intact: " + info.State.Locked + "; /reset opens it"
	}
	return report, nil
}

func (r repairReport) print(w io.Writer) {
	say := func(format string, args ...any) { _, _ = fmt.Fprintf(w, format+"\n", args...) }
	for _, g := range r.Gaps {
		say("%s", g)
	}
	switch {
	case !r.Damaged:
		say("%s needs no repair: core can continue it.", r.Ref)
		if r.Reason != "" {
			say("%s", clean(r.Reason))
		}
		return
	case r.Repaired:
		say("%s", clean(r.Answer))
		return
	}
	say("%s is damaged: %s", r.Ref, clean(r.Reason))
	switch {
	case !r.Locked:
		say("Core has not locked it yet; what can be saved is known once it has.")
	case r.Saved == 0:
		say("Nothing could be saved: it would be opened empty.")
	default:
		say("Saved: %s, up to commit %d. Everything later is lost.", count(r.Turns, "turn"), r.Saved)
	}
	say("%s sessions repair %s --agent %s --yes opens it again; /reset in the session opens it empty.",
		buildinfo.Command(), r.Session, r.Agent)
}

// lookFor lists the commits that cannot be read or do not follow the previous one. A
// checkpoint starts over: commits before it no longer matter.
func lookFor(ctx context.Context, b *journal.Journal, ref subject.Ref) (gaps []string, err error) {
	last, begun := uint64(0), false
	for m, err := range b.Commits(ctx, ref, 0) {
		if err != nil {
			return gaps, err
		}
		c, err := event.DecodeCommit(ref, m.Data)
		if !begun && err == nil { // what was before may have left the log
			last = c.Header.Prev
		}
		begun = true
		switch {
		case err != nil:
			gaps = append(gaps, fmt.Sprintf("commit %d cannot be read: %v", m.Seq, err))
		case decide.IsCheckpoint(c):
			if last != c.Header.Prev {
				gaps = append(gaps, fmt.Sprintf("commit %d is a checkpoint, and follows %d, not %d",
					m.Seq, c.Header.Prev, last))
			}
		case c.Header.Prev != last:
			gaps = append(gaps, fmt.Sprintf(
				"commit %d follows %d, which is missing or unreadable; the previous one is %d",
				m.Seq, c.Header.Prev, last))
		case c.Header.FoldVersion > decide.FoldVersion:
			gaps = append(gaps, fmt.Sprintf("commit %d was written by a newer core: fold version %d, this one has %d",
				m.Seq, c.Header.FoldVersion, decide.FoldVersion))
		}
		last = m.Seq
	}
	return gaps, nil
}

// runCommand sends a slash command to a session and waits for its answer.
func (c *connection) runCommand(ctx context.Context, ref subject.Ref, name string) (string, error) {
	items, err := c.Follow(ctx, ref)
	if err != nil {
		return "", err
	}
	seq, err := c.Command(ctx, ref, name)
	if err != nil {
		return "", err
	}
	in := turn.Input{Sequence: seq}
	end, err := in.Follow(turn.Items(ctx, items), nil)
	switch {
	case err != nil:
		return "", fmt.Errorf("/%s in %s: no answer: %w", name, ref, err)
	case end.Failed != nil:
		return "", fmt.Errorf("/%s in %s: %s", name, ref, end.Failed.Reason)
	}
	return end.Recorded.Answer, nil
}

// printTroubles lists the sessions that need an operator.
func printTroubles(w io.Writer, all []coreapi.Trouble) {
	for _, t := range all {
		name := t.Ref.String()
		if t.Kind == coreapi.TroubleLog {
			name = "the log"
		}
		_, _ = fmt.Fprintf(w, "ALARM %s, since %s: %s\n", name, ago(t.Since), clean(t.Reason))
	}
}
