package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"skandha.dev/services/toolrunner/tools/filesystem"
	"skandha.dev/services/toolrunner/tools/skills"
)

// skillsCmd lists skills, without a running system.
type skillsCmd struct {
	List skillsListCmd `cmd:"" default:"withargs" help:"List the skills of the workspace and of the data directory, and what is wrong with the others. Exits 1 if anything is."`
}

type skillsListCmd struct{}

// Run implements the command.
func (skillsListCmd) Run(g *globals) error {
	workspace := g.workspace()
	if g.Files.Instructions == filesystem.InstructionsOff {
		workspace = ""
	}
	return listSkills(os.Stdout, workspace, filepath.Join(g.Data, "skills"))
}

// listSkills lists the skills that are offered, and then the faults of the others. Those of the
// workspace "" are not.
func listSkills(out io.Writer, workspace, dir string) error {
	places := []skills.Place{skills.InDirectory(dir)}
	if root, err := os.OpenRoot(workspace); err == nil { // a system that never ran has none
		defer func() { _ = root.Close() }()
		places = append([]skills.Place{skills.InWorkspace(root)}, places...)
	}
	list, wrong := skills.New(places...).List()
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "SKILL\tFROM\tTOOLS\tDESCRIPTION")
	for _, s := range list {
		allowed := "all"
		if s.AllowedTools != nil {
			allowed = "only " + line(strings.Join(*s.AllowedTools, ", "), 60)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", s.Name, s.Source(), allowed, line(s.Description, 100))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, err := range wrong {
		fmt.Fprintf(out, "! %s\n", clean(err.Error())) // it names folders, which anybody may have named
	}
	if len(wrong) > 0 {
		return exitFailed
	}
	return nil
}
