package conformance

import (
	"strings"
	"time"

	"skandha.dev/pkg/subject"
)

// Status is how a check ended.
type Status string

// The statuses.
const (
	Passed  Status = "passed"
	Failed  Status = "failed"
	Skipped Status = "skipped" // Result.Why says why
)

// Finding is one thing that is not as it should be.
type Finding struct {
	Expected string `json:"expected"`
	Seen     string `json:"seen"`
	Advice   string `json:"advice"` // what to do
}

// Result is the outcome of one check.
type Result struct {
	Check    string    `json:"check"` // its name, e.g. "hook/before_act/answers"
	What     string    `json:"what"`  // what it is about, in a sentence
	Status   Status    `json:"status"`
	Why      string    `json:"why,omitempty"`      // with Skipped
	Findings []Finding `json:"findings,omitempty"` // with Failed
	Notes    []string  `json:"notes,omitempty"`    // worth knowing, no fault
	TookMS   int64     `json:"took_ms"`
}

// Report is what a run has found.
type Report struct {
	Command []string       `json:"command"`
	Plugin  subject.Plugin `json:"plugin,omitempty"` // empty: it never registered
	Version string         `json:"version,omitempty"`
	Checks  []Result       `json:"checks"`
	Passed  int            `json:"passed"`
	Failed  int            `json:"failed"`
	Skipped int            `json:"skipped"`
	TookMS  int64          `json:"took_ms"`
	Output  string         `json:"output,omitempty"` // the last that the plugin wrote, when a check failed
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

// check collects what one check finds.
type check struct {
	findings []Finding
	notes    []string
}

// maxFindings bounds what one check reports: the tenth of a kind says nothing new.
const maxFindings = 8

func (c *check) fail(expected, seen, advice string) {
	if len(c.findings) < maxFindings {
		c.findings = append(c.findings, Finding{expected, seen, advice})
	}
}

func (c *check) note(s string) { c.notes = append(c.notes, s) }

func (c *check) ok() bool { return len(c.findings) == 0 }

// seconds is a duration as people read it.
func seconds(d time.Duration) string {
	if d < time.Second {
		return d.Round(time.Millisecond).String()
	}
	return d.Round(10 * time.Millisecond).String()
}

// quote is a body for a person: on one line, not too long.
func quote(b []byte) string {
	if len(b) == 0 {
		return "(empty)"
	}
	s := strings.Join(strings.Fields(strings.ToValidUTF8(string(b), "�")), " ")
	if len(s) > 300 {
		s = strings.ToValidUTF8(s[:300], "") + "…"
	}
	return s
}
