package tools

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"skandha.dev/pkg/tool"
	"skandha.dev/services/sandbox/agent"
)

// where ends the descriptions of all runs.
const where = "It runs in an isolated sandbox: no network, no access to the host, an unprivileged Linux user. " +
	"Each call is a fresh process, so variables do not persist, but files in the working directory /workspace do, " +
	"for the whole session. Files written to /workspace/out are handed to the user as artifacts. " +
	"Output beyond 64 KiB is cut in the middle. An exit_code other than 0 makes the call fail; stderr says why, " +
	"and data still has everything."

// runArgs are the arguments that all runs have in common.
var runArgs = fmt.Sprintf(`
	"timeout":{"type":"number","exclusiveMinimum":0,"maximum":%d,"default":%d,"description":"time limit in seconds; default %[2]d, at most %[1]d"},
	"lifecycle":{"type":"string","enum":["session","call"],"default":"session","description":"session (default): in the session's sandbox, whose files persist; call: in an empty sandbox for this call only, destroyed afterwards"}`,
	int(MaxTimeout.Seconds()), int(DefaultTimeout.Seconds()))

type runFields struct {
	Timeout   float64 `json:"timeout"`
	Lifecycle string  `json:"lifecycle"`
}

// job returns the job of a run with its timeout and lifecycle.
func (f runFields) job(run agent.Run) Job {
	run.Timeout = time.Duration(f.Timeout * float64(time.Second))
	if run.Timeout <= 0 {
		run.Timeout = DefaultTimeout
	}
	run.Timeout = min(run.Timeout, MaxTimeout)
	return Job{Run: &run, Fresh: f.Lifecycle == "call"}
}

// Python returns the tool python:execute.
func Python() Tool {
	return define(tool.Spec{
		Name: "python:execute",
		Description: "Executes Python 3 code and returns stdout, stderr, exit_code and result: " +
			"the value of the last line if that is an expression, as in a notebook. Use it to compute, analyse data, " +
			"draw (open matplotlib figures become pictures for the user; sandbox_fs:read shows one to you) " +
			"and work with files. " + where +
			" Name packages that the sandbox lacks in dependencies.",
		Args: json.RawMessage(`{"type":"object","properties":{
	"code":{"type":"string","minLength":1,"description":"the Python code"},
	"dependencies":{"type":"array","items":{"type":"string","minLength":1},"maxItems":32,"default":[],"description":"packages to install first from the package index, with optional versions, e.g. [\"requests\", \"pandas>=2\"]; they stay for the session"},
	"requirements":{"type":"array","items":{"type":"string","minLength":1},"maxItems":32,"default":[],"description":"the same as dependencies"},` + runArgs + `},
	"required":["code"],"additionalProperties":false}`),
		Risk: tool.RiskMedium, Permissions: []string{"code.execute"},
		ScenarioTags: []string{"data_analysis", "task_execution"},
		TimeoutMS:    (MaxTimeout + Around).Milliseconds(),
	}, func(a struct {
		runFields
		Code         string   `json:"code"`
		Dependencies []string `json:"dependencies"`
		Requirements []string `json:"requirements"`
	},
	) (Job, error) {
		j := a.job(agent.Run{Kind: agent.Python, Code: a.Code})
		j.Packages = slices.Concat(a.Dependencies, a.Requirements)
		return j, nil
	})
}

// shellTool returns the tool shell:execute.
func shellTool() Tool {
	return define(tool.Spec{
		Name: "shell:execute",
		Description: "Runs a command and returns stdout, stderr and exit_code. Give either argv, " +
			"a program with its arguments, without a shell, or command, " +
			"a command line for /bin/sh with pipes and redirections. " + where,
		Args: json.RawMessage(`{"type":"object","properties":{
	"command":{"type":"string","minLength":1,"description":"a command line for /bin/sh, e.g. \"sort data.csv | head\""},
	"argv":{"type":"array","items":{"type":"string"},"minItems":1,"maxItems":1024,"description":"a program and its arguments, e.g. [\"ls\", \"-l\", \"my file\"]"},
	"stdin":{"type":"string","default":"","description":"the command's standard input; default empty"},
	"dir":{"type":"string","default":"","description":"directory to run in, relative to /workspace; default /workspace itself"},` + runArgs + `},
	"additionalProperties":false}`),
		Risk: tool.RiskMedium, Permissions: []string{"code.execute"},
		ScenarioTags: []string{"task_execution", "file_management"},
		TimeoutMS:    (MaxTimeout + Around).Milliseconds(),
	}, func(a struct {
		runFields
		Command string   `json:"command"`
		Argv    []string `json:"argv"`
		Stdin   string   `json:"stdin"`
		Dir     string   `json:"dir"`
	},
	) (Job, error) {
		run := agent.Run{Stdin: []byte(a.Stdin), Dir: inside(a.Dir)}
		switch {
		case a.Command != "" && len(a.Argv) > 0:
			return Job{}, errors.New("both command and argv are given; give one of them")
		case a.Command != "":
			run.Kind, run.Code = agent.Shell, a.Command
		case len(a.Argv) > 0 && a.Argv[0] != "":
			run.Kind, run.Argv = agent.Argv, a.Argv
		case len(a.Argv) > 0:
			return Job{}, errors.New("/argv/0: is empty; want the program's name")
		default:
			return Job{}, errors.New("neither command nor argv is given; give one of them")
		}
		return a.job(run), nil
	})
}
