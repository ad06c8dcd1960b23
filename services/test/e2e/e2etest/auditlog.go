package e2etest

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	auditing "skandha.dev/services/internal/audit"
	"skandha.dev/services/internal/coreapi"
)

// audited compares the audit log with the log of decisions, although its writers were killed: the chain is whole, no
// decision has two entries, and each input that was answered and each call that a runner got and that succeeded has
// one. The auditor may be behind for a while.
func (s *System) audited(log *Log) (faults []string) {
	s.T.Helper()
	if slices.ContainsFunc(s.Cores, func(p *Proc) bool { return p.expected["ALARM"] }) {
		return nil // it was lost, and a core has said so
	}
	for deadline := time.Now().Add(Patience); ; time.Sleep(200 * time.Millisecond) {
		entries, err := s.auditLog()
		if err != nil {
			faults = []string{"the audit log: " + err.Error()}
		} else {
			faults = compared(log, entries)
		}
		if len(faults) == 0 || time.Now().After(deadline) {
			return faults
		}
	}
}

// auditLog reads all of the audit log, after core has verified it.
func (s *System) auditLog() (entries []auditing.Entry, err error) {
	for q := (coreapi.AuditQuery{From: 1, Limit: 1000, Verify: true}); q.From != 0; {
		body, err := json.Marshal(q)
		if err != nil {
			return nil, err
		}
		answer, err := s.request(coreapi.AdminName, coreapi.VerbAudit, body)
		if err != nil {
			return nil, err
		}
		var page coreapi.AuditPage
		if err := json.Unmarshal(answer, &page); err != nil {
			return nil, err
		}
		if page.Damage != "" {
			return nil, fmt.Errorf("it is damaged: %s", page.Damage)
		}
		for _, line := range page.Lines {
			var e auditing.Entry
			if err := json.Unmarshal([]byte(line), &e); err != nil {
				return nil, fmt.Errorf("%s: %w", line, err)
			}
			entries = append(entries, e)
		}
		q = coreapi.AuditQuery{From: page.Next, Limit: 1000}
	}
	return entries, nil
}

// compared returns what the audit log lacks, and what it has twice.
func compared(log *Log, entries []auditing.Entry) (faults []string) {
	sources, asked, executed := map[string]int{}, map[string]int{}, map[string]int{}
	for _, e := range entries {
		if e.Source != nil {
			sources[fmt.Sprintf("%s of commit %d", e.Source.Part, e.Source.Sequence)]++
		}
		switch e.Verb {
		case auditing.Asked:
			asked[e.Turn]++
		case auditing.Executed:
			executed[e.Call]++
		case auditing.Damaged, auditing.Renewed:
			faults = append(faults, fmt.Sprintf("entry %d of the audit log says that a log is %s: %s", e.N, e.Verb, e.Detail))
		}
	}
	for source, n := range sources {
		if n > 1 {
			faults = append(faults, fmt.Sprintf("%s has %d entries in the audit log", source, n))
		}
	}
	for _, e := range log.Entries {
		ends := log.Terminals[e.Seq]
		if n := asked[fmt.Sprintf("t%d", e.Seq)]; e.Kind() == "input" && len(ends) > 0 && ends[0].Failed == "" && n != 1 {
			faults = append(faults, fmt.Sprintf("the input at %d was answered, and has %d entries in the audit log", e.Seq, n))
		}
	}
	for id, k := range log.Calls {
		if n := executed[id]; len(k.Requested) > 0 && slices.Contains(k.Results, "success") && n != 1 {
			faults = append(faults, fmt.Sprintf("call %s succeeded, and has %d entries in the audit log", id, n))
		}
	}
	slices.Sort(faults)
	return faults
}
