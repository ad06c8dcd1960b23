package security

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/core/decide"
	"skandha.dev/services/internal/people"
)

// ApprovalsConfig is the section approvals of the configuration file.
type ApprovalsConfig struct {
	// Rules say who approves which calls; the last one that matches counts. A call that no rule
	// matches is approved by any one person who may answer.
	Rules []ApprovalRule `yaml:"rules"`
	// Delegations let people approve what others may.
	Delegations []Delegation `yaml:"delegations"`
}

// ApprovalRule says who approves a call for which policy, a hook or the circuit breaker requires an
// approval. It does not make a call need one. All conditions must hold; an absent one always does.
type ApprovalRule struct {
	Tool  string    `yaml:"tool"`  // pattern, e.g. "file_system:*", case-insensitive
	Risk  tool.Risk `yaml:"risk"`  // of the tool: low, medium or high
	Agent string    `yaml:"agent"` // pattern

	By     []string `yaml:"by"`     // people and groups who may answer; default: all people
	People int      `yaml:"people"` // how many different people must approve; default 1
	// NotRequester excludes the person whose input the call is for. If people does not name that person,
	// one more person must approve, so that enough others do.
	NotRequester bool          `yaml:"not_requester"`
	Expires      time.Duration `yaml:"expires"` // how long people have; default: confirm of the agent
	Passkey      bool          `yaml:"passkey"` // an approval needs a passkey, so it is given on the page alone
}

// Delegation lets a person approve what another may, but not calls for inputs of that other person.
type Delegation struct {
	From  string    `yaml:"from"`  // the person who delegates
	To    string    `yaml:"to"`    // the person who approves instead
	Until time.Time `yaml:"until"` // RFC 3339
}

// Bounds of a rule of approvals.
const (
	maxApprovers = 10
	minExpires   = 10 * time.Second
	maxExpires   = 30 * 24 * time.Hour
)

// Approvals are the checked rules of approvals. It is safe for concurrent use.
type Approvals struct {
	people      *people.Directory
	rules       []approvalRule
	delegations []Delegation
}

type approvalRule struct {
	ApprovalRule
	name        string // "approvals.rules[3]"
	tool, agent pattern
}

// NewApprovals checks the rules. The error lists each mistake with its field.
func NewApprovals(c ApprovalsConfig, who *people.Directory) (*Approvals, error) {
	check := checker{}
	out := &Approvals{people: who, delegations: slices.Clone(c.Delegations)}
	for i, r := range c.Rules {
		out.rules = append(out.rules, check.approval("approvals.rules["+strconv.Itoa(i)+"]", r, who))
	}
	for i, d := range c.Delegations {
		at := "approvals.delegations[" + strconv.Itoa(i) + "]"
		for _, f := range []struct{ field, name string }{{"from", d.From}, {"to", d.To}} {
			if !who.Is(f.name) {
				check.add("%s.%s is %q, want the name of a person in people", at, f.field, f.name)
			}
		}
		if d.From == d.To {
			check.add("%s.to is %q, the same person as from", at, d.To)
		}
		if d.Until.IsZero() {
			check.add("%s.until is missing, want a time such as 2030-01-01T00:00:00Z", at)
		}
	}
	return out, check.err()
}

func (c *checker) approval(at string, r ApprovalRule, who *people.Directory) approvalRule {
	out := approvalRule{
		ApprovalRule: r, name: at, tool: c.pattern(at+".tool", tool.FoldName(r.Tool)), agent: c.pattern(at+".agent", r.Agent),
	}
	if r.Risk != "" && r.Risk != tool.RiskLow && r.Risk != tool.RiskMedium && r.Risk != tool.RiskHigh {
		c.add("%s.risk is %q, want low, medium or high", at, r.Risk)
	}
	for i, name := range r.By {
		if !who.Names(name) {
			c.add("%s.by[%d] is %q, want the name of a person in people, or of a group that one of them has", at, i, name)
		}
	}
	if out.People == 0 {
		out.People = 1
	}
	if out.People < 1 || out.People > maxApprovers {
		c.add("%s.people is %d, want 1 to %d", at, r.People, maxApprovers)
	} else if may := who.In(r.By); len(may) < out.People {
		c.add("%s.people is %d, but only %d may approve; name more people", at, out.People, len(may))
	}
	if r.Expires != 0 && (r.Expires < minExpires || r.Expires > maxExpires) {
		c.add("%s.expires is %v, want %v to %v", at, r.Expires, minExpires, maxExpires)
	}
	return out
}

// Person implements decide.Approvals.
func (p *Approvals) Person(by subject.Writer, from string) string { return p.people.Person(by, from) }

// Demand implements decide.Approvals.
func (p *Approvals) Demand(a decide.Access) (*event.Approval, time.Duration) {
	for i := range slices.Backward(p.rules) {
		if r := &p.rules[i]; r.matches(&a) {
			return p.demanded(r, &a), r.Expires
		}
	}
	return nil, 0
}

func (r *approvalRule) matches(a *decide.Access) bool {
	return (r.Risk == "" || r.Risk == riskOf(&a.Resource)) && r.tool.match(tool.FoldName(a.Resource.Name)) &&
		r.agent.match(string(a.Context.Ref.Agent))
}

func (p *Approvals) demanded(r *approvalRule, a *decide.Access) *event.Approval {
	d := &event.Approval{Rule: r.name, By: r.By, People: r.People, Passkey: r.Passkey}
	if r.NotRequester {
		if d.Requester = p.Person(a.Principal, a.From); d.Requester == "" {
			d.Requester = a.Name()
			d.People++ // one of them may be the requester
		}
	}
	return d
}

// May implements decide.Approvals.
func (p *Approvals) May(d event.Approval, person string, at time.Time) (delegator, why string) {
	may := p.people.In(d.By)
	if slices.Contains(may, person) {
		return "", ""
	}
	over := ""
	for _, g := range p.delegations {
		switch {
		case g.To != person || !p.people.Is(person) || !slices.Contains(may, g.From):
		case !at.Before(g.Until):
			over = fmt.Sprintf("; the delegation of %s ended at %s", g.From, g.Until.UTC().Format(time.RFC3339))
		case g.From == d.Requester:
			over = fmt.Sprintf("; %s asked for this call, so %s cannot delegate its approval", g.From, g.From)
		default:
			return g.From, ""
		}
	}
	const shown = 5
	others := strings.Join(may[:min(len(may), shown)], ", ")
	if len(may) > shown {
		others += " and others"
	}
	return "", fmt.Sprintf("%s may not answer this request (%s); %s may%s", person, d.Rule, others, over)
}
