package hookscript

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/plugin"
	"skandha.dev/services/test/natstest"
)

// script makes a runner of commands for an event. Those that never end have half a second, others as long as it takes.
func script(t *testing.T, event string, commands ...string) runner {
	t.Helper()
	type one struct {
		Type    string  `json:"type"`
		Command string  `json:"command"`
		Timeout float64 `json:"timeout"`
	}
	var list []one
	for _, c := range commands {
		within := 30.0
		if strings.Contains(c, "sleep") || strings.Contains(c, "yes") {
			within = 0.5
		}
		list = append(list, one{"command", c, within})
	}
	b, err := json.Marshal(map[string]any{"hooks": map[string]any{event: []any{map[string]any{"hooks": list}}}})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "hooks.json"), b, 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	return newRunner(s)
}

func call(tool, args string) *plugin.HookCall[hook.ActData] {
	return &plugin.HookCall[hook.ActData]{Data: hook.ActData{Call: "c", Tool: tool, Args: json.RawMessage(args)}}
}

// verb returns what a reply does, as it would be on the wire.
func verb(t *testing.T, r plugin.Reply, err error) string {
	t.Helper()
	switch {
	case err != nil:
		return "error"
	case r == plugin.Continue():
		return "pass"
	}
	s := fmt.Sprintf("%+v", r)
	for _, v := range []hook.Verb{hook.DenyVerb, hook.Confirm, hook.Replace} {
		if strings.HasPrefix(s, "{verb:"+string(v)+" ") {
			return string(v)
		}
	}
	return s
}

const says = `echo '{"hookSpecificOutput":{"hookEventName":"PreToolUse",%s}}'`

// Whatever becomes of a command, and however many calls are asked about at once, no call passes
// that the command did not let pass.
func TestNoCallPassesAHookThatFails(t *testing.T) {
	for name, c := range map[string]struct{ command, want string }{
		"passes":                 {`true`, "pass"},
		"says something":         {`echo checked`, "pass"},
		"reads its input":        {`grep -q '"tool_name":"Bash"' && grep -q x /dev/null || test $? = 1`, "pass"},
		"allows":                 {fmt.Sprintf(says, `"permissionDecision":"allow"`), "pass"},
		"approves":               {`echo '{"decision":"approve"}'`, "pass"},
		"denies":                 {`echo no >&2; exit 2`, "deny"},
		"denies in JSON":         {fmt.Sprintf(says, `"permissionDecision":"deny","permissionDecisionReason":"no"`), "deny"},
		"blocks":                 {`echo '{"decision":"block","reason":"no"}'`, "deny"},
		"stops":                  {`echo '{"continue":false,"stopReason":"no"}'`, "deny"},
		"asks":                   {fmt.Sprintf(says, `"permissionDecision":"ask","permissionDecisionReason":"sure?"`), "confirm"},
		"rewrites":               {fmt.Sprintf(says, `"updatedInput":{"command":"true"}`), "replace"},
		"rewrites and asks":      {fmt.Sprintf(says, `"permissionDecision":"ask","updatedInput":{"command":"true"}`), "confirm"},
		"another exit code":      {`exit 1`, "deny"},
		"crashes":                {`kill -SEGV $$`, "deny"},
		"is killed":              {`kill -KILL $$`, "deny"},
		"is missing":             {`/no/such/program`, "deny"},
		"is slow":                {`sleep 60`, "deny"},
		"is slow in the back":    {`sleep 60 & echo '{}'; wait`, "deny"},
		"leaves its output open": {`sleep 60 &`, "deny"},
		"writes garbage":         {`echo '{"decision":'`, "deny"},
		"writes more after it":   {`echo '{} {"decision":"block"}'`, "deny"},
		"writes without end":     {`yes`, "deny"},
		"writes to both":         {`yes >&2`, "deny"},
		"decides the unknown":    {`echo '{"decision":"perhaps"}'`, "deny"},
		"permits the unknown":    {fmt.Sprintf(says, `"permissionDecision":"perhaps"`), "deny"},
		"answers another event":  {`echo '{"hookSpecificOutput":{"hookEventName":"Stop"}}'`, "deny"},
		"rewrites to a number":   {fmt.Sprintf(says, `"updatedInput":7`), "deny"},
		"denies without a key":   {`echo '{"permissionDecision":"deny"}'`, "deny"},
		"denies in two cases":    {`echo '{"decision":"block","Decision":"approve"}'`, "deny"},
		"denies after a mark":    {`printf '\357\273\277{"decision":"block"}'`, "deny"},
		"writes a list":          {`echo '[]'`, "deny"},
		"writes null":            {`echo null`, "deny"},
		"has another type":       {`echo '{"continue":"no"}'`, "deny"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := script(t, PreToolUse, c.command)
			var all sync.WaitGroup
			for range 4 {
				all.Go(func() {
					if got, _, said := r.asked(t, call("shell:execute", `{"command":"rm x"}`)); got != c.want {
						t.Errorf("%s: %s %s, want %s", c.command, got, said, c.want)
					}
				})
			}
			all.Wait()
		})
	}
}

// The credentials of the plugin are not the commands'.
func TestACommandDoesNotGetThePluginsCredentials(t *testing.T) {
	t.Setenv("SKANDHA_NATS", "nats://secret@127.0.0.1:4222")
	r := script(t, PreToolUse, `env | grep -q SKANDHA_ && exit 2; test -n "$PATH" && test "$PWD" = "$CLAUDE_PROJECT_DIR"`)
	if got, _, said := r.asked(t, call("shell:execute", `{}`)); got != "pass" {
		t.Errorf("%s %s", got, said)
	}
}

// Several commands decide together: the strictest one wins.
func TestSeveralCommandsDecideTogether(t *testing.T) {
	allow, ask := fmt.Sprintf(says, `"permissionDecision":"allow"`), fmt.Sprintf(says, `"permissionDecision":"ask"`)
	one, two := fmt.Sprintf(says, `"updatedInput":{"a":1}`), fmt.Sprintf(says, `"updatedInput":{"a":2}`)
	for _, c := range []struct {
		commands []string
		want     string
	}{
		{[]string{allow, "exit 2", ask}, "deny"},
		{[]string{allow, ask}, "confirm"},
		{[]string{one, one}, "replace"},
		{[]string{one, two}, "deny"},
	} {
		r := script(t, PreToolUse, c.commands...)
		if got, _, _ := r.asked(t, call("shell:execute", `{}`)); got != c.want {
			t.Errorf("%v: %s, want %s", c.commands, got, c.want)
		}
	}
}

// asked asks both plugins about a call, as core does, and returns what becomes of it.
func (r runner) asked(t *testing.T, c *plugin.HookCall[hook.ActData]) (does string, args json.RawMessage, said string) {
	t.Helper()
	reply, err := r.shape(natstest.Context(t), c)
	does = verb(t, reply, err)
	if does == "deny" || does == "error" {
		return does, nil, fmt.Sprintf("%+v %v", reply, err)
	}
	judged := *c
	if does == "replace" {
		shaped, _ := r.calls.all.Peek(keyOf(c))
		judged.Data.Args = shaped.to
		if want := fmt.Sprintf("%+v", plugin.Replace(judged.Data)); fmt.Sprintf("%+v", reply) != want {
			t.Errorf("%+v, want %s", reply, want)
		}
	}
	reply, err = r.judge(natstest.Context(t), &judged)
	if judges := verb(t, reply, err); judges != "pass" {
		does = judges
	}
	return does, judged.Data.Args, fmt.Sprintf("%+v %v", reply, err)
}

// A tool and its arguments have the names of the format on the way to the command, and ours on
// the way back.
func TestNamesThereAndBack(t *testing.T) {
	r := script(t, PreToolUse, `cat > in.json; `+fmt.Sprintf(says, `"updatedInput":{"file_path":"safe.txt","content":"x"}`))
	does, args, said := r.asked(t, call("file_system:write_file", `{"path":"a.txt","content":"x"}`))
	b, readErr := os.ReadFile(filepath.Join(r.script.Dir, "in.json"))
	var in input
	if readErr != nil || json.Unmarshal(b, &in) != nil || in.Tool != "Write" || !same(in.Input, json.RawMessage(
		`{"file_path":"a.txt","content":"x"}`)) || in.Event != PreToolUse || in.Cwd != r.script.Dir {
		t.Errorf("the command got %s, %v", b, readErr)
	}
	if does != "replace" || string(args) != `{"content":"x","path":"safe.txt"}` {
		t.Errorf("%s %s %s", does, args, said)
	}
	for ours, theirs := range map[string]string{"math:evaluate": "mcp__math__evaluate", "shell:execute": "Bash", "odd": "odd"} {
		if got := toolOf(ours).Theirs; got != theirs {
			t.Errorf("%s is %s", ours, got)
		}
	}
	if _, err := toolOf("file_system:read_file").theirs(json.RawMessage(`{"path":"a","file_path":"b"}`)); err == nil {
		t.Error("two arguments may not become one")
	}
}

func TestInputsAndResults(t *testing.T) {
	ctx := natstest.Context(t)
	asks := func(command string) string {
		r := script(t, UserPromptSubmit, command)
		reply, err := r.sensed(ctx, &plugin.HookCall[hook.PerceptionsData]{
			Data: hook.PerceptionsData{Perceptions: []hook.Perception{{ID: "1", Text: "hello"}}},
		})
		return verb(t, reply, err)
	}
	for command, want := range map[string]string{
		"true": "pass", "exit 2": "deny", "exit 1": "deny", "echo It is Friday.": "replace",
		`echo '{"decision":"block","reason":"no"}'`: "deny",
	} {
		if got := asks(command); got != want {
			t.Errorf("input: %s: %s, want %s", command, got, want)
		}
	}
	for command, want := range map[string]string{"true": "pass", "exit 2": "deny", "kill -9 $$": "deny"} {
		r := script(t, PostToolUse, command)
		reply, err := r.after(ctx, &plugin.HookCall[hook.AfterActData]{
			Data: hook.AfterActData{Tool: "web:fetch", Args: json.RawMessage(`{}`)},
		})
		if got := verb(t, reply, err); got != want {
			t.Errorf("result: %s: %s, want %s", command, got, want)
		}
	}
}

// What cannot be read is an error, and what cannot be served is named.
func TestFiles(t *testing.T) {
	for content, want := range map[string]string{
		`{`: "unexpected end",
		`{"hooks":{"PreToolUse":[{"matcher":"(","hooks":[]}]}}`:                                               `PreToolUse[0]: matcher "("`,
		`{"hooks":{"PreToolUse":[{"hooks":[{"type":"prompt"}]}]}}`:                                            "only commands",
		`{"hooks":{"PreToolUse":[{"hooks":[{"type":"command"}]}]}}`:                                           "command is missing",
		`{"hooks":{"PreToolUse":[{"hooks":[{"type":"command","command":"x","async":true}]}]}}`:                "async",
		`{"hooks":{"SessionStart":[{}],"Stop":[{"hooks":[{"type":"command","command":"x","timeout":999}]}]}}`: "",
	} {
		dir := t.TempDir()
		if err := os.MkdirAll(filepath.Join(dir, ".claude"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, ".claude", "settings.json"), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := Read(dir)
		switch {
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)) &&
			(err != nil || len(s.Broken) != 1 || !strings.Contains(s.Broken[0], want)):
			t.Errorf("%s: %+v, %v, want %q", content, s, err, want)
		case want == "" && (err != nil || len(s.Left) != 1 || s.Commands[0].Timeout != 55*time.Second):
			t.Errorf("%s: %+v, %v", content, s, err)
		}
	}
	if _, err := Read(t.TempDir()); err == nil {
		t.Error("a directory without hooks is read")
	}
	for matcher, tools := range map[string]string{
		"": "Bash Edit Write Writer mcp__a__b", "*": "Bash Edit Write Writer mcp__a__b",
		"Edit|Write": "Edit Write", "Edit, Write": "Edit Write", "^Wri": "Write Writer", "mcp__a": "", "mcp__a__.*": "mcp__a__b",
		"|": "",
	} {
		var got []string
		m, err := json.Marshal(matcher)
		s := &Script{}
		if err != nil || s.add(fmt.Appendf(nil,
			`{"hooks":{"PreToolUse":[{"matcher":%s,"hooks":[{"type":"command","command":"x"}]}]}}`, m)) != nil {
			t.Fatalf("%s: %v", matcher, err)
		}
		for _, tool := range []string{"Bash", "Edit", "Write", "Writer", "mcp__a__b"} {
			if len(s.of(PreToolUse, tool)) == 1 {
				got = append(got, tool)
			}
		}
		if strings.Join(got, " ") != tools {
			t.Errorf("%q matches %v, want %s", matcher, got, tools)
		}
	}
}
