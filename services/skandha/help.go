package main

import (
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// helpAll prints the help with all flags.
type helpAll bool

// IgnoreDefault implements kong's interface of flags without a value.
func (helpAll) IgnoreDefault() {}

// BeforeReset implements kong's hook: the command line may be incomplete.
func (helpAll) BeforeReset(k *kong.Context) error {
	hideFlags(k, false)
	if err := kong.DefaultHelpPrinter(kong.HelpOptions{Compact: true, FlagsLast: true}, k); err != nil {
		return err
	}
	k.Exit(0)
	return nil
}

// shortHelp prints a command's own flags and those that select the system.
func shortHelp(o kong.HelpOptions, k *kong.Context) error {
	hideFlags(k, true)
	return kong.DefaultHelpPrinter(o, k)
}

// startsSystem lists the commands that use the flags of an embedded system.
var startsSystem = []string{"up", "chat", "ask", "doctor"}

// hideFlags hides the flags of an embedded system in the short help, and for commands
// that start none.
func hideFlags(k *kong.Context, short bool) {
	command := ""
	if n := k.Selected(); n != nil {
		command, _, _ = strings.Cut(strings.TrimPrefix(n.FullPath(), "skandha "), " ")
	}
	hide := short || command != "" && !slices.Contains(startsSystem, command)
	for _, f := range k.Model.Flags {
		if f.Group == nil { // the command's own flags have no group and are listed first
			f.Group = &kong.Group{Key: "Help", Title: "Help"}
		}
		if f.Group.Key != "Help" && f.Group.Key != "The system" {
			f.Hidden = hide
		}
	}
}

// given returns the names of the flags on the command line; embedded are those for a
// system that the command starts.
func given(k *kong.Context) (all map[string]bool, embedded []string) {
	all = map[string]bool{}
	for _, p := range k.Path {
		if p.Flag == nil || p.Resolved {
			continue
		}
		all[p.Flag.Name] = true
		if p.Flag.Group != nil && strings.Contains(strings.ToLower(p.Flag.Group.Title), "embedded system") {
			embedded = append(embedded, "--"+p.Flag.Name)
		}
	}
	return all, embedded
}
