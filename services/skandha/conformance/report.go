package conformance

import (
	"strings"
	"time"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/text"
)

// Status is the outcome of a check.
type Status string

// The statuses.
const (
	Passed  Status = "passed"
	Failed  Status = "failed"
	Skipped Status = "skipped" // for the reason in Result.Why
)

// Finding is one fault.
type Finding struct {
	Expected string `json:"expected"`
	Seen     string `json:"seen"`
	Advice   string `json:"advice"` // what to do
}

// Result is the outcome of one check.
type Result struct {
	Check    string    `json:"check"` // its name, e.g. "hook/before_act/answers"
	What     string    `json:"what"`  // what it checks, in a sentence
	Status   Status    `json:"status"`
	Why      string    `json:"why,omitempty"`      // with Skipped
	Findings []Finding `json:"findings,omitempty"` // with Failed
	Notes    []string  `json:"notes,omitempty"`    // worth knowing, but not faults
	TookMS   int64     `json:"took_ms"`
}

// Report is the result of a run.
type Report struct {
	Command []string       `json:"command"`
	Plugin  subject.Plugin `json:"plugin,omitempty"` // empty: it never registered
	Version string         `json:"version,omitempty"`
	Checks  []Result       `json:"checks"`
	Passed  int            `json:"passed"`
	Failed  int            `json:"failed"`
	Skipped int            `json:"skipped"`
	TookMS  int64          `json:"took_ms"`
	Output  string         `json:"output,omitempty"` // the end of the plugin's output, when a check failed
}

// OK reports whether no check failed.
func (r *Report) OK() bool { return r.Failed == 0 }

func (r *Report) add(one Result) {
	r.Checks = append(r.Checks, one)
	switch one.Status {
	case Passed:
		r.Passed++
	case Failed:
		r.Failed++
	case Skipped:
		r.Skipped++
	}
}

// check collects the findings of one check.
type check struct {
	findings []Finding
	notes    []string
}

// maxFindings bounds the findings of one check: the tenth of a kind adds nothing.
const maxFindings = 8

func (c *check) fail(expected, seen, advice string) {
	if len(c.findings) < maxFindings {
		c.findings = append(c.findings, Finding{expected, seen, advice})
	}
}

func (c *check) note(s string) { c.notes = append(c.notes, s) }

func (c *check) ok() bool { return len(c.findings) == 0 }

// seconds formats a duration for people.
func seconds(d time.Duration) string {
	if d < time.Second {
		return d.Round(time.Millisecond).String()
	}
	return d.Round(10 * time.Millisecond).String()
}

// quote formats a body for people: on one line, not too long.
func quote(b []byte) string {
	if len(b) == 0 {
		return "(empty)"
	}
	return text.Cut(strings.Join(strings.Fields(strings.ToValidUTF8(string(b), "�")), " "), 300)
}
