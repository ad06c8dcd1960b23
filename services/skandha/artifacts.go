package main

import (
	"context"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/journal"

	"skandha.dev/services/internal/buildinfo"
)

// artifactsCmd handles files that tools hand over to users, and users to tools.
type artifactsCmd struct {
	List artifactsListCmd `cmd:"" default:"withargs" help:"List the artifacts."`
	Get  artifactsGetCmd  `cmd:"" help:"Fetch an artifact."`
	Put  artifactsPutCmd  `cmd:"" help:"Store a file for a session; its agent copies it into the sandbox with sandbox_fs:upload."`
	Rm   artifactsRmCmd   `cmd:"" help:"Remove artifacts by name, session, agent or age."`
}

// artifactsOf returns the prefix of the names of a session's or an agent's artifacts;
// it is empty if neither is given.
func artifactsOf(agent, session string) string {
	switch {
	case session != "":
		return orElse(agent, "main") + "/" + session + "/"
	case agent != "":
		return agent + "/"
	}
	return ""
}

type artifactsListCmd struct {
	Agent   string `short:"a" placeholder:"NAME" help:"Only of this agent."`
	Session string `short:"s" placeholder:"NAME" help:"Only of this session (of the agent main, unless --agent names another)."`
	JSON    bool   `help:"Print JSON."`
}

// Run implements the command.
func (l *artifactsListCmd) Run(ctx context.Context, g *globals) error {
	c, err := g.connectRunning(ctx)
	if err != nil {
		return err
	}
	defer c.close()
	all, err := c.Journal.Artifacts(ctx, artifactsOf(l.Agent, l.Session))
	if err != nil {
		return err
	}
	if l.JSON {
		return printJSON(os.Stdout, all, true)
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 4, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "BYTES\tSTORED\tNAME")
	for _, a := range all {
		_, _ = fmt.Fprintf(w, "%d\t%s\t%s\n", a.Bytes, ago(a.Stored), clean(a.Name))
	}
	return w.Flush()
}

type artifactsGetCmd struct {
	Name string `arg:"" help:"Name, as listed and as results give it (ref)."`
	Out  string `short:"o" placeholder:"FILE" help:"File to write; - is standard output. Default: the last part of the artifact's name, in this directory. An existing file is overwritten only if this flag names it."`
}

// Run implements the command.
func (a *artifactsGetCmd) Run(ctx context.Context, g *globals) error {
	c, err := g.connectRunning(ctx)
	if err != nil {
		return err
	}
	defer c.close()
	data, err := c.Journal.GetArtifact(ctx, a.Name)
	if errors.Is(err, bus.ErrNotFound) {
		return fmt.Errorf("no artifact %q; %s artifacts lists them", a.Name, buildinfo.Command())
	}
	if err != nil {
		return err
	}
	if a.Out == "-" {
		_, err := os.Stdout.Write(data)
		return err
	}
	name, flags := a.Out, os.O_WRONLY|os.O_CREATE|os.O_TRUNC
	if name == "" {
		// A tool chose the name: use only its last part, and replace no file.
		name, flags = path.Base("/"+a.Name), os.O_WRONLY|os.O_CREATE|os.O_EXCL
		if name == "/" || name == ".." || filepath.Base(name) != name {
			return fmt.Errorf("%q cannot be used as a file name; name a file with --out", a.Name)
		}
	}
	f, err := os.OpenFile(name, flags, 0o600)
	if errors.Is(err, os.ErrExist) {
		return fmt.Errorf("%s exists; name another file with --out", name)
	}
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Close()); err == nil {
		fmt.Fprintf(os.Stderr, "wrote %s, %s\n", clean(name), count(len(data), "byte"))
	}
	return err
}

type artifactsPutCmd struct {
	Session string `arg:"" help:"Session to store it for."`
	File    string `arg:"" type:"existingfile" help:"File to store."`
	Agent   string `short:"a" default:"main" placeholder:"NAME" help:"Agent of the session."`
	Name    string `placeholder:"NAME" help:"Name of the artifact. Default: the file's."`
}

// Run implements the command.
func (p *artifactsPutCmd) Run(ctx context.Context, g *globals) error {
	for what, id := range map[string]string{"SESSION": p.Session, "--agent": p.Agent} {
		if !subject.Valid(id) {
			return fmt.Errorf("%s: %w: %q", what, subject.ErrInvalidID, id)
		}
	}
	c, err := g.connectRunning(ctx)
	if err != nil {
		return err
	}
	defer c.close()
	ref := p.Agent + "/" + p.Session + "/uploads/" + orElse(p.Name, filepath.Base(p.File))
	data, err := c.put(ctx, ref, p.File)
	if err != nil {
		return err
	}
	fmt.Println(clean(ref))
	request := fmt.Sprintf(`use sandbox_fs:upload {"artifact": %q, "path": %q}`, clean(ref), clean(path.Base(ref)))
	fmt.Fprintf(os.Stderr, "stored %s; to have the agent copy it into the sandbox:\n  %s ask --agent %s --session %s %s\n",
		count(len(data), "byte"), buildinfo.Command(), p.Agent, p.Session, quoted(request))
	return nil
}

type artifactsRmCmd struct {
	Names     []string      `arg:"" optional:"" help:"Artifacts, as listed."`
	Agent     string        `short:"a" placeholder:"NAME" help:"All artifacts of this agent."`
	Session   string        `short:"s" placeholder:"NAME" help:"All artifacts of this session (of the agent main, unless --agent names another)."`
	OlderThan time.Duration `placeholder:"AGE" help:"Only artifacts older than this, e.g. 168h."`
	Results   bool          `help:"Also the full data of results that the conversation keeps only in shortened form."`
	Yes       bool          `short:"y" help:"Do not ask for confirmation."`
}

// Validate returns an error if the command selects nothing, or in two ways.
func (r *artifactsRmCmd) Validate() error {
	selects := r.Agent != "" || r.Session != "" || r.OlderThan != 0 || r.Results
	switch {
	case len(r.Names) > 0 && selects:
		return errors.New("both names and a selection are given; name artifacts, or use --agent, --session and --older-than")
	case len(r.Names) == 0 && r.Agent == "" && r.Session == "" && r.OlderThan == 0:
		return errors.New("nothing selected; name artifacts, or use --agent, --session or --older-than")
	case r.OlderThan < 0:
		return fmt.Errorf("--older-than is %v, want a positive duration, e.g. 168h", r.OlderThan)
	}
	return nil
}

// Run implements the command.
func (r *artifactsRmCmd) Run(ctx context.Context, g *globals) error {
	c, err := g.connectRunning(ctx)
	if err != nil {
		return err
	}
	defer c.close()
	all, err := c.Journal.Artifacts(ctx, artifactsOf(r.Agent, r.Session))
	if err != nil {
		return err
	}
	chosen, results, err := r.choose(all, time.Now())
	if err != nil {
		return err
	}
	var bytes uint64
	for _, a := range chosen {
		bytes += a.Bytes
	}
	what := fmt.Sprintf("%s, %d bytes", count(len(chosen), "artifact"), bytes)
	if results > 0 {
		fmt.Fprintf(os.Stderr, "%s of results not included; --results removes them as well\n", count(results, "artifact"))
	}
	if len(chosen) == 0 {
		fmt.Fprintln(os.Stderr, "nothing to remove")
		return nil
	}
	if !r.Yes {
		if err := r.ask(ctx, chosen, what); err != nil {
			return err
		}
	}
	for _, a := range chosen {
		if err := c.Journal.DeleteArtifact(ctx, a.Name); err != nil {
			return err
		}
	}
	fmt.Fprintf(os.Stderr, "removed %s\n", what)
	return nil
}

// choose returns the artifacts to remove, and how many more --results would add.
func (r *artifactsRmCmd) choose(
	all []journal.ArtifactInfo, now time.Time,
) (chosen []journal.ArtifactInfo, results int, err error) {
	missing := slices.Clone(r.Names)
	for _, a := range all {
		switch {
		case len(r.Names) > 0:
			if slices.Contains(r.Names, a.Name) {
				chosen = append(chosen, a)
				missing = slices.DeleteFunc(missing, func(n string) bool { return n == a.Name })
			}
		case now.Sub(a.Stored) < r.OlderThan:
		case !a.File() && !r.Results:
			results++
		default:
			chosen = append(chosen, a)
		}
	}
	if len(missing) > 0 {
		return nil, 0, fmt.Errorf("no artifact %q; %s artifacts lists them", missing[0], buildinfo.Command())
	}
	return chosen, results, nil
}

// ask shows what will be removed, and returns an error unless the user agrees.
func (r *artifactsRmCmd) ask(ctx context.Context, chosen []journal.ArtifactInfo, what string) error {
	for _, a := range chosen {
		_, _ = fmt.Fprintln(os.Stderr, clean(a.Name))
	}
	if !isTerminal(os.Stdin) {
		return fmt.Errorf("nothing was removed; add --yes to remove %s", what)
	}
	yes, err := agreed(ctx, fmt.Sprintf("Remove %s?", what))
	if err == nil && !yes {
		err = errors.New("nothing was removed")
	}
	return err
}

// put stores a file as an artifact and returns its content.
func (c *connection) put(ctx context.Context, ref, file string) ([]byte, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return data, c.Journal.PutArtifact(ctx, ref, data)
}

// upload stores files for a session, so that an input can name them.
func (c *connection) upload(ctx context.Context, ref subject.Ref, files []string) (out []provider.File, err error) {
	for i, file := range files {
		f := provider.File{
			Name: filepath.Base(file),
			Ref:  fmt.Sprintf("%s/uploads/%s-%d-%s", ref, time.Now().UTC().Format("20060102-150405.000"), i, filepath.Base(file)),
		}
		data, err := c.put(ctx, f.Ref, file)
		if err != nil {
			return nil, fmt.Errorf("storing %s: %w", file, err)
		}
		f.Bytes = int64(len(data))
		if f.MediaType = mime.TypeByExtension(filepath.Ext(file)); f.MediaType == "" {
			f.MediaType = http.DetectContentType(data)
		}
		f.MediaType, _, _ = strings.Cut(f.MediaType, ";")
		out = append(out, f)
	}
	return out, nil
}
