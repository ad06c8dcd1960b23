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

// What all runs say of where they run.
const where = "It runs in an isolated sandbox: no network, no access to the host, a Linux user without rights. " +
	"Each call is a fresh process, so variables do not last, but files in the working directory /workspace do, for the whole conversation. " +
	"Files written to /workspace/out are handed to the user as artifacts. " +
	"Output beyond 64 KiB is cut in the middle; an exit_code other than 0 makes the call fail, and stderr says why; data has all of it."

// The arguments that runs have in common.
var runArgs = fmt.Sprintf(`
	"timeout":{"type":"number","exclusiveMinimum":0,"maximum":%d,"default":%d,"description":"seconds after which it is stopped; default %[2]d, at most %[1]d"},
	"lifecycle":{"type":"string","enum":["session","call"],"default":"session","description":"session (default): in the conversation's own sandbox, whose files last; call: in an empty sandbox for this call alone, destroyed after it"}`,
	int(MaxTimeout.Seconds()), int(DefaultTimeout.Seconds()))

type runFields struct {
	Timeout   float64 `json:"timeout"`
	Lifecycle string  `json:"lifecycle"`
}

// job makes a run of its timeout and lifecycle.
func (f runFields) job(run agent.Run) Job {
	run.Timeout = time.Duration(f.Timeout * float64(time.Second))
	if run.Timeout <= 0 {
		run.Timeout = DefaultTimeout
	}
	run.Timeout = min(run.Timeout, MaxTimeout)
	return Job{Run: &run, Fresh: f.Lifecycle == "call"}
}

// Python is python:execute.
func Python() Tool {
	return define(tool.Spec{
		Name: "python:execute",
		Description: "Executes Python 3 code and answers stdout, stderr, exit_code and result: the value of the last line if that is an expression, as in a notebook. " +
			"Use it to compute, to analyse data, to draw (open matplotlib figures become pictures for the user), to work with files. " + where +
			" Packages that the sandbox does not have are named in dependencies.",
		Args: json.RawMessage(`{"type":"object","properties":{
	"code":{"type":"string","minLength":1,"description":"the Python code"},
	"dependencies":{"type":"array","items":{"type":"string","minLength":1},"maxItems":32,"default":[],"description":"packages from the package index to have installed first, with optional versions, e.g. [\"requests\", \"pandas>=2\"]; they stay for the conversation"},
	"requirements":{"type":"array","items":{"type":"string","minLength":1},"maxItems":32,"default":[],"description":"the same as dependencies"},` + runArgs + `},
	"required":["code"],"additionalProperties":false}`),
		Risk: tool.RiskMedium, Permissions: []string{"code.execute"}, ScenarioTags: []string{"data_analysis", "task_execution"},
		TimeoutMS: (MaxTimeout + Around).Milliseconds(),
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

// Shell is shell:execute.
func Shell() Tool {
	return define(tool.Spec{
		Name: "shell:execute",
		Description: "Runs a command and answers stdout, stderr and exit_code. Give either argv, a program with its arguments that no shell interprets, " +
			"or command, a text for /bin/sh with pipes and redirections. " + where,
		Args: json.RawMessage(`{"type":"object","properties":{
	"command":{"type":"string","minLength":1,"description":"a command line for /bin/sh, e.g. \"sort data.csv | head\""},
	"argv":{"type":"array","items":{"type":"string"},"minItems":1,"maxItems":1024,"description":"a program and its arguments, e.g. [\"ls\", \"-l\", \"my file\"]"},
	"stdin":{"type":"string","default":"","description":"what the command reads on standard input; default nothing"},
	"dir":{"type":"string","default":"","description":"directory to run in, relative to /workspace; default /workspace itself"},` + runArgs + `},
	"additionalProperties":false}`),
		Risk: tool.RiskMedium, Permissions: []string{"code.execute"}, ScenarioTags: []string{"task_execution", "file_management"},
		TimeoutMS: (MaxTimeout + Around).Milliseconds(),
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
			return Job{}, errors.New("command and argv are both given; give one of them")
		case a.Command != "":
			run.Kind, run.Code = agent.Shell, a.Command
		case len(a.Argv) > 0 && a.Argv[0] != "":
			run.Kind, run.Argv = agent.Argv, a.Argv
		case len(a.Argv) > 0:
			return Job{}, errors.New("/argv/0: is empty; it names the program")
		default:
			return Job{}, errors.New("neither command nor argv is given; give one of them")
		}
		return a.job(run), nil
	})
}
