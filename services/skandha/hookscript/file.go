package hookscript

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// The events that are served.
const (
	PreToolUse       = "PreToolUse"
	PostToolUse      = "PostToolUse"
	UserPromptSubmit = "UserPromptSubmit"
	Stop             = "Stop"
)

// Points has the hook point of each event that is served.
var Points = map[string]string{
	PreToolUse: "before_act", PostToolUse: "after_act", UserPromptSubmit: "after_sense", Stop: "after_reflect",
}

// Places lists where a hooks file is looked for in a directory.
var Places = []string{
	"hooks.json", "hooks/hooks.json", ".claude/settings.json", ".claude/settings.local.json", "settings.json",
}

// The time that a command has: by default, and at most. A hook may take no longer than a minute.
const (
	defaultTimeout = 30 * time.Second
	maxTimeout     = 55 * time.Second
)

// Command is a command of an event.
type Command struct {
	Event   string
	Matcher string // of the tools; empty: all
	Line    string // for the shell
	Timeout time.Duration
	matches *regexp.Regexp // nil: the event concerns no tool
}

// Script is what the files of a directory say.
type Script struct {
	Dir      string // an absolute path
	Files    []string
	Commands []Command
	Left     []string // what cannot be served and would deny nothing, and why
	Broken   []string // what cannot be served although it would deny, and why
}

// Read reads the files of a directory. A hook that cannot be served is named in the result; a file that cannot be
// read is an error.
func Read(dir string) (*Script, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	s := &Script{Dir: abs}
	for _, place := range Places {
		data, err := os.ReadFile(filepath.Join(abs, filepath.FromSlash(place)))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = s.add(data)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", filepath.Join(dir, place), err)
		}
		s.Files = append(s.Files, place)
	}
	if len(s.Files) == 0 {
		return nil, fmt.Errorf("no hooks in %s; looked for %v", dir, Places)
	}
	return s, nil
}

func (s *Script) add(data []byte) error {
	var file struct {
		Hooks map[string][]struct {
			Matcher string `json:"matcher"`
			Hooks   []struct {
				Type    string   `json:"type"`
				Command string   `json:"command"`
				Timeout *float64 `json:"timeout"` // seconds
				Async   bool     `json:"async"`
			} `json:"hooks"`
		} `json:"hooks"`
	}
	if err := json.Unmarshal(data, &file); err != nil {
		return err
	}
	for _, event := range sorted(file.Hooks) {
		for i, group := range file.Hooks[event] {
			at := fmt.Sprintf("%s[%d]", event, i)
			if Points[event] == "" {
				s.Left = append(s.Left, at+": Skandha has no such point")
				continue
			}
			leave := func(format string, args ...any) {
				if why := fmt.Sprintf(format, args...); event == Stop {
					s.Left = append(s.Left, why)
				} else {
					s.Broken = append(s.Broken, why)
				}
			}
			c := Command{Event: event}
			if event == PreToolUse || event == PostToolUse { // the others concern no tool
				var err error
				if c.matches, err = matcher(group.Matcher); err != nil {
					leave("%s: matcher %q: %v", at, shorten(group.Matcher, 60), err)
					continue
				}
				c.Matcher = group.Matcher
			}
			for j, h := range group.Hooks {
				c.Line, c.Timeout = h.Command, defaultTimeout
				switch {
				case h.Type != "command":
					leave("%s.hooks[%d]: type is %q; only commands can be run", at, j, shorten(h.Type, 40))
					continue
				case h.Command == "":
					leave("%s.hooks[%d]: command is missing", at, j)
					continue
				case h.Async && (event == PreToolUse || event == UserPromptSubmit):
					leave("%s.hooks[%d]: async: a hook that nobody waits for denies nothing; remove it", at, j)
					continue
				case h.Timeout != nil && *h.Timeout > 0:
					c.Timeout = min(time.Duration(*h.Timeout*float64(time.Second)), maxTimeout)
				}
				s.Commands = append(s.Commands, c)
			}
		}
	}
	return nil
}

// plain matches a matcher that is a list of names.
var plain = regexp.MustCompile(`^[A-Za-z0-9_, |-]*$`)

// matcher compiles a matcher: a list of whole names, or a regular expression that matches a part
// of the name.
func matcher(text string) (*regexp.Regexp, error) {
	switch {
	case text == "" || text == "*":
		text = ""
	case plain.MatchString(text):
		names := strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune("|, ", r) })
		text = "^(?:" + strings.Join(names, "|") + ")$" // without a name: no tool
	}
	return regexp.Compile(text)
}

// Idle reports that a command matches none of the names in [Tools], and none that another tool
// could have.
func (c Command) Idle() bool {
	return c.matches != nil && !strings.Contains(c.Matcher, "mcp__") && !c.matches.MatchString("mcp__a__b") &&
		!slices.ContainsFunc(Tools, func(t Tool) bool { return c.matches.MatchString(t.Theirs) })
}

// of returns the commands of an event that match a tool.
func (s *Script) of(event, tool string) (out []Command) {
	for _, c := range s.Commands {
		if c.Event == event && (tool == "" || c.matches.MatchString(tool)) {
			out = append(out, c)
		}
	}
	return out
}
