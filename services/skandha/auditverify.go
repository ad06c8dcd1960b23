package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/audit"
	"skandha.dev/services/internal/buildinfo"
	"skandha.dev/services/internal/coreapi"
)

type auditVerifyCmd struct {
	Head     []string `type:"existingfile" help:"File to which core publishes the head (audit.head.file), or with heads from its webhook; may be repeated." placeholder:"FILE"`
	File     []string `type:"existingfile" help:"Verify exported entries instead, without a system; several files continue each other." placeholder:"FILE"`
	Complete bool     `help:"Fail if the first entries are missing. Without it they may be, because the log drops the oldest at its limit."`
	From     uint64   `default:"1" help:"Number of the entry to begin with, for example after one that says that the log was damaged." placeholder:"N"`
}

// Run implements the command.
func (v *auditVerifyCmd) Run(ctx context.Context, g *globals) error {
	var heads []audit.Head
	for _, path := range v.Head {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		of, err := audit.ReadHeads(f)
		if err = errors.Join(err, f.Close()); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		for _, h := range of {
			if h.N >= v.From {
				heads = append(heads, h)
			}
		}
	}
	verifier, note, err := v.read(ctx, g, heads)
	if err != nil {
		return err
	}
	return v.report(os.Stdout, verifier, note)
}

// read reads the entries, and compares them.
func (v *auditVerifyCmd) read(ctx context.Context, g *globals, heads []audit.Head) (*audit.Verifier, string, error) {
	if len(v.File) > 0 {
		verifier := audit.NewVerifier(time.Time{}, heads)
		for _, path := range v.File {
			if err := v.file(verifier, path); err != nil {
				return nil, "", fmt.Errorf("%s: %w", path, err)
			}
		}
		return verifier, "not compared with the log of decisions: these are files", nil
	}
	c, err := g.connectRunning(ctx)
	if err != nil {
		return nil, "", err
	}
	defer c.close()
	log, err := c.Journal.LogState(ctx)
	if err != nil {
		return nil, "", err
	}
	verifier := audit.NewVerifier(log.Created, heads)
	_, err = c.auditFrom(ctx, coreapi.AuditQuery{From: max(v.From, 1)}, func(lines []string) error {
		for _, l := range lines {
			verifier.Line([]byte(l))
		}
		return nil
	})
	if err != nil {
		return nil, "", err
	}
	for m, err := range c.Journal.AllCommits(ctx, 0) {
		if err != nil {
			return nil, "", err
		}
		ref, err := subject.ParseCommit(m.Subject)
		if err != nil {
			continue
		}
		if commit, err := event.DecodeCommit(ref, m.Data); err == nil { // core could not read others, either
			verifier.Commit(commit, m.Seq, m.Data)
		}
		if m.Seq >= verifier.Log.Sequence {
			break
		}
	}
	return verifier, "", nil
}

// file reads exported entries.
func (v *auditVerifyCmd) file(into *audit.Verifier, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	lines := bufio.NewReader(f)
	for {
		line, err := lines.ReadBytes('\n')
		if line = bytes.TrimSuffix(line, []byte("\n")); len(line) > 0 {
			if e, err := audit.Parse(line); err != nil || e.N >= v.From {
				into.Line(line)
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// maxBreaks is how many breaks are printed.
const maxBreaks = 20

func (v *auditVerifyCmd) report(out io.Writer, found *audit.Verifier, note string) error {
	breaks := found.Breaks()
	if found.N == 0 && len(breaks) == 0 {
		_, _ = fmt.Fprintln(out, "There are no entries.")
		if v.Complete {
			return exitFailed
		}
		return nil
	}
	_, _ = fmt.Fprintf(out, "%s, %d to %d\n", entries(found.Entries), found.First, found.N)
	missing := found.First > max(v.From, 1)
	if missing {
		_, _ = fmt.Fprintf(out, "entries before %d are not here and were not checked: removed, or dropped at the limit of the log\n",
			found.First)
	} else if found.First > 1 {
		_, _ = fmt.Fprintf(out, "entries before %d were not checked: --from leaves them out\n", found.First)
	}
	if note == "" {
		note = fmt.Sprintf("%d compared with the log of decisions, %d of commits that it no longer has", found.Compared, found.Gone())
	}
	_, _ = fmt.Fprintln(out, note)
	if found.Heads > 0 {
		_, _ = fmt.Fprintf(out, "%s agree\n", count(found.Heads, "published head"))
	}
	if n := found.Unchecked(); n > 0 {
		_, _ = fmt.Fprintf(out, "%s of entries before %d: not compared\n", count(n, "published head"), found.First)
	}
	_, _ = fmt.Fprintf(out, "head   %d %s\n", found.N, found.Digest)
	switch {
	case len(breaks) > 0:
	case missing && v.Complete:
		_, _ = fmt.Fprintf(out, "NOT COMPLETE, intact from entry %d on\n", found.First)
		fmt.Fprintf(os.Stderr, "skandha: the first entries of the audit log are missing; what an earlier `%s audit export` has "+
			"may help: give its file as well\n", buildinfo.Command())
		return exitFailed
	case found.First > 1:
		_, _ = fmt.Fprintf(out, "intact from entry %d on\n", found.First)
		return nil
	default:
		_, _ = fmt.Fprintln(out, "intact")
		return nil
	}
	_, _ = fmt.Fprintf(out, "NOT INTACT, from entry %d on:\n", breaks[0].N)
	for i, b := range breaks {
		if i == maxBreaks {
			_, _ = fmt.Fprintf(out, "  and %d more\n", len(breaks)-maxBreaks)
			break
		}
		_, _ = fmt.Fprintf(out, "  %s\n", clean(b.Reason))
	}
	fmt.Fprintf(os.Stderr, "skandha: the audit log is not intact; what an earlier `%s audit export` has may help\n", buildinfo.Command())
	return exitFailed
}
