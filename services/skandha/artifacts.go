package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"text/tabwriter"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
)

// artifactsCmd is about what tools leave for people, and people for tools.
type artifactsCmd struct {
	List artifactsListCmd `cmd:"" default:"withargs" help:"List the artifacts."`
	Get  artifactsGetCmd  `cmd:"" help:"Fetch an artifact."`
	Put  artifactsPutCmd  `cmd:"" help:"Store a file for a session: its agent gets it into the sandbox with sandbox_fs:upload."`
}

type artifactsListCmd struct {
	Agent   string `short:"a" placeholder:"NAME" help:"Only of this agent."`
	Session string `short:"s" placeholder:"NAME" help:"Only of this session (of the agent main, unless --agent says another)."`
	JSON    bool   `help:"Print JSON."`
}

// Run implements the command.
func (l *artifactsListCmd) Run(ctx context.Context, g *globals) error {
	prefix := ""
	switch {
	case l.Session != "":
		prefix = orElse(l.Agent, "main") + "/" + l.Session + "/"
	case l.Agent != "":
		prefix = l.Agent + "/"
	}
	c, err := g.connectRunning(ctx)
	if err != nil {
		return err
	}
	defer c.close()
	all, err := c.Bus.Artifacts(ctx, prefix)
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
	Name string `arg:"" help:"As it is listed, and as results name it (ref)."`
	Out  string `short:"o" placeholder:"FILE" help:"Where to; - is standard output. Default: the last part of its name, here. A file that exists is not overwritten unless this names it."`
}

// Run implements the command.
func (a *artifactsGetCmd) Run(ctx context.Context, g *globals) error {
	c, err := g.connectRunning(ctx)
	if err != nil {
		return err
	}
	defer c.close()
	data, err := c.Bus.GetArtifact(ctx, a.Name)
	if errors.Is(err, bus.ErrNotFound) {
		return fmt.Errorf("there is no artifact %q; skandha artifacts lists them", a.Name)
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
		// The name is a tool's word: only its last part is taken, and nothing is replaced.
		name, flags = path.Base("/"+a.Name), os.O_WRONLY|os.O_CREATE|os.O_EXCL
		if name == "/" || name == ".." || filepath.Base(name) != name {
			return fmt.Errorf("%q has no name for a file: give one with --out", a.Name)
		}
	}
	f, err := os.OpenFile(name, flags, 0o600)
	if errors.Is(err, os.ErrExist) {
		return fmt.Errorf("%s exists: name a file with --out", name)
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
	Session string `arg:"" help:"The session that it is for."`
	File    string `arg:"" type:"existingfile" help:"The file."`
	Agent   string `short:"a" default:"main" placeholder:"NAME" help:"The session's agent."`
	Name    string `placeholder:"NAME" help:"Its name. Default: the file's."`
}

// Run implements the command.
func (p *artifactsPutCmd) Run(ctx context.Context, g *globals) error {
	for what, id := range map[string]string{"SESSION": p.Session, "--agent": p.Agent} {
		if !subject.Valid(id) {
			return fmt.Errorf("%s: %w: %q", what, subject.ErrInvalidID, id)
		}
	}
	data, err := os.ReadFile(p.File)
	if err != nil {
		return err
	}
	c, err := g.connectRunning(ctx)
	if err != nil {
		return err
	}
	defer c.close()
	ref := p.Agent + "/" + p.Session + "/uploads/" + orElse(p.Name, filepath.Base(p.File))
	if err := c.Bus.PutArtifact(ctx, ref, data); err != nil {
		return err
	}
	fmt.Println(clean(ref))
	request := fmt.Sprintf("Call sandbox_fs:upload with artifact %s and path %s", clean(ref), clean(path.Base(ref)))
	fmt.Fprintf(os.Stderr, "stored %s; to have the agent copy it into the sandbox:\n  skandha ask --agent %s --session %s %s\n",
		count(len(data), "byte"), p.Agent, p.Session, quoted(request))
	return nil
}
