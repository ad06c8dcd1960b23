package filesystem

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"slices"
	"strings"

	"skandha.dev/pkg/tool"
	"skandha.dev/services/toolrunner/tools"
)

// Files of the workspace that instruct the agents of all its sessions.
const (
	AgentsFile = "AGENTS.md" // in any folder
	SkillsDir  = "skills"    // in the root, with everything below it
)

// Instructions is what becomes of [AgentsFile] and [SkillsDir].
type Instructions string

// The values of Instructions.
const (
	InstructionsRead  Instructions = "read"  // they are read, and file tools cannot change them; the default
	InstructionsWrite Instructions = "write" // they are read, and file tools can change them
	InstructionsOff   Instructions = "off"   // they are files like any other
)

var errInstructs = errors.New("file tools cannot change it, because it instructs the agents of every session; " +
	"change it by hand, or start the tool runner with --files-instructions write")

// NotesDir is the folder, in the root, in which the tools notes:* keep a file for each agent.
const NotesDir = "notes"

var errNotes = errors.New("it holds the notes of an agent; use notes:add and notes:search for your own")

// apart makes a tool refuse the files in which agents keep their notes, as an agent sees its own alone,
// through notes:search, and the folder in which the tools keep labels.
func apart(t tools.Tool) tools.Tool {
	return refusing(t, func(p string) error {
		if ownDir(p) {
			return errProtected
		}
		parts := strings.Split(filepath.ToSlash(p), "/")
		if len(parts) == 2 && strings.EqualFold(parts[0], NotesDir) && strings.EqualFold(filepath.Ext(p), ".jsonl") {
			return errNotes
		}
		return nil
	})
}

// kept makes a tool that writes refuse the files that instruct agents.
func kept(t tools.Tool) tools.Tool {
	return refusing(t, func(p string) error {
		if instructs(p) {
			return errInstructs
		}
		return nil
	})
}

// refusing makes a tool refuse the clean paths for which refuse returns why.
func refusing(t tools.Tool, refuse func(path string) error) tools.Tool {
	run := t.Run
	t.Run = func(ctx context.Context, c tools.Call) tool.Result {
		var args struct {
			Path string `json:"path"`
		}
		if json.Unmarshal(c.Args, &args) == nil { // otherwise the tool reports the error
			if p, err := clean(args.Path); err == nil {
				if err := refuse(p); err != nil {
					return tools.Fail(explain("using", args.Path, err))
				}
			}
		}
		return run(ctx, c)
	}
	return t
}

// instructs reports whether a clean path is of a file that instructs agents, or would be below a
// folder with such a file's name, which would keep the file from being created. Some disks
// ignore case.
func instructs(p string) bool {
	parts := strings.Split(filepath.ToSlash(p), "/")
	return strings.EqualFold(parts[0], SkillsDir) ||
		slices.ContainsFunc(parts, func(part string) bool { return strings.EqualFold(part, AgentsFile) })
}
