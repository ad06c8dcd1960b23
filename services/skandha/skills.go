package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"text/tabwriter"

	"skandha.dev/services/toolrunner/tools/skills"
)

// skillsCmd lists skills, without a running system.
type skillsCmd struct {
	List skillsListCmd `cmd:"" default:"withargs" help:"List the skills of the workspace and of the data directory, and what is wrong with the others. Exits 1 if anything is."`
}

type skillsListCmd struct{}

// Run implements the command.
func (skillsListCmd) Run(g *globals) error {
	return listSkills(os.Stdout, cmp.Or(g.Workspace, filepath.Join(g.Data, "workspace")), filepath.Join(g.Data, "skills"))
}

// listSkills lists the skills that are offered, and then the faults of the others.
func listSkills(out io.Writer, workspace, dir string) error {
	places := []skills.Place{skills.InDirectory(dir)}
	if root, err := os.OpenRoot(workspace); err == nil { // a system that never ran has none
		defer func() { _ = root.Close() }()
		places = append([]skills.Place{skills.InWorkspace(root)}, places...)
	}
	list, wrong := skills.New(places...).List()
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "SKILL\tFROM\tDESCRIPTION")
	for _, s := range list {
		fmt.Fprintf(w, "%s\t%s\t%s\n", s.Name, s.Source(), line(s.Description, 100))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, err := range wrong {
		fmt.Fprintf(out, "! %v\n", err)
	}
	if len(wrong) > 0 {
		return exitFailed
	}
	return nil
}
