package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"skandha.dev/services/core"
	"skandha.dev/services/core/guidefile"
	"skandha.dev/services/internal/nearest"
	"skandha.dev/services/skandha/system"
	"skandha.dev/services/toolrunner/tools/agentsmd"
	"skandha.dev/services/toolrunner/tools/filesystem"
)

// guidesCmd shows and checks guides, without a running system.
type guidesCmd struct {
	List  guidesListCmd  `cmd:"" default:"withargs" help:"List the built-in guides and those in guides_dir. Those of plugins are listed by skandha plugins show."`
	Show  guidesShowCmd  `cmd:"" help:"Print a guide as a file. To change a built-in one: skandha guides show NAME > guides/NAME.md"`
	Check guidesCheckCmd `cmd:"" help:"Print all errors in files of guides, with their lines. Exits 0 if there are none, else 1."`
}

// workspace returns the directory of the file tools of the system that the flags select.
func (g *globals) workspace() string { return cmp.Or(g.Workspace, filepath.Join(g.Data, "workspace")) }

// guidesDir returns the directory with guides of the system that the flags select.
func (g *globals) guidesDir() (string, error) {
	cfg, err := core.ReadConfig(g.Config)
	return system.GuidesDir(cfg, g.Data), err
}

type guidesListCmd struct{}

// Run implements the command.
func (guidesListCmd) Run(g *globals) error {
	dir, err := g.guidesDir()
	if err != nil {
		return err
	}
	if err := listGuides(os.Stdout, dir); err != nil {
		return err
	}
	if g.Files.Instructions == filesystem.InstructionsOff {
		return nil
	}
	return listProject(os.Stdout, g.workspace())
}

// listProject names the file with project notes that agents see beside their guides, and those that
// cannot be used.
func listProject(out io.Writer, workspace string) error {
	root, err := os.OpenRoot(workspace)
	if errors.Is(err, os.ErrNotExist) { // the system never ran
		return nil
	}
	if err != nil {
		return fmt.Errorf("opening the workspace: %w", err)
	}
	defer func() { _ = root.Close() }()
	p, wrong := agentsmd.Read(root)
	switch {
	case wrong != nil:
		fmt.Fprintf(out, "! %s\n", clean(wrong.Error()))
	case p != nil:
		fmt.Fprintf(out, "\nProject notes, for agents that may read them: %s, %s bytes\n",
			filepath.Join(workspace, p.Path), grouped(int(p.Size)))
	}
	return nil
}

// listGuides lists the guides that can be used, and then what is wrong with the others.
func listGuides(out io.Writer, dir string) error {
	names, err := guidefile.Names(dir)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "GUIDE\tFROM\tDESCRIPTION")
	var wrong []error
	for _, name := range names {
		if guide, _, err := guidefile.Read(dir, name); err != nil {
			wrong = append(wrong, err)
		} else {
			fmt.Fprintf(w, "%s\t%s\t%s\n", name, filepath.Join(dir, name+".md"), line(guide.Description, 100))
		}
	}
	for _, name := range guidefile.BuiltInNames() {
		if guide, _, ok := guidefile.BuiltIn(name); ok && !slices.Contains(names, name) {
			fmt.Fprintf(w, "%s\tbuilt in\t%s\n", name, line(guide.Description, 100))
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, err := range wrong {
		fmt.Fprintf(out, "! %s\n", clean(err.Error()))
	}
	return nil
}

type guidesShowCmd struct {
	Name string `arg:"" help:"The guide's name."`
}

// Run implements the command.
func (c guidesShowCmd) Run(g *globals) error {
	dir, err := g.guidesDir()
	if err != nil {
		return err
	}
	return showGuide(os.Stdout, dir, c.Name)
}

// showGuide prints the file of a guide, or of the built-in one.
func showGuide(out io.Writer, dir, name string) error {
	_, file, err := guidefile.Read(dir, name)
	if errors.Is(err, os.ErrNotExist) {
		var ok bool
		if _, file, ok = guidefile.BuiltIn(name); !ok {
			return noGuide(dir, name)
		}
	} else if err != nil && file == nil {
		return err
	}
	_, err = out.Write(file)
	return err
}

func noGuide(dir, name string) error {
	names, _ := guidefile.Names(dir) // only for a hint
	names = append(names, guidefile.BuiltInNames()...)
	hint := "skandha guides lists the names"
	if near := nearest.Word(name, names); near != "" {
		hint = fmt.Sprintf("did you mean %s?", near)
	}
	return fmt.Errorf("no guide %q in %s, and none is built in; %s", name, dir, hint)
}

type guidesCheckCmd struct {
	Files []string `arg:"" optional:"" name:"file" placeholder:"FILE" help:"Files of guides, named NAME.md. Default: all in guides_dir."`
}

// Run implements the command.
func (c guidesCheckCmd) Run(g *globals) error {
	if len(c.Files) == 0 {
		dir, err := g.guidesDir()
		if err != nil {
			return err
		}
		names, err := guidefile.Names(dir)
		if err != nil {
			return err
		}
		for _, name := range names {
			c.Files = append(c.Files, filepath.Join(dir, name+".md"))
		}
		if len(names) == 0 {
			return fmt.Errorf("%s has no guides to check; name a file", dir)
		}
	}
	return checkGuides(os.Stdout, os.Stderr, c.Files)
}

// checkGuides prints each file that is right, and the errors in the others.
func checkGuides(out, faults io.Writer, files []string) (err error) {
	for _, file := range files {
		name, is := strings.CutSuffix(filepath.Base(file), ".md")
		_, _, wrong := guidefile.Read(filepath.Dir(file), name)
		if !is {
			wrong = fmt.Errorf("%s is not named NAME.md", file)
		}
		if errors.Is(wrong, os.ErrNotExist) {
			wrong = fmt.Errorf("%s does not exist", file)
		}
		if wrong != nil {
			fmt.Fprintln(faults, clean(wrong.Error()))
			err = exitFailed
			continue
		}
		fmt.Fprintln(out, file+": ok")
	}
	return err
}
