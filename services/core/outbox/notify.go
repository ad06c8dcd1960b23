package outbox

import (
	"errors"
	"fmt"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/secret"
)

// Occasion is what people are notified of.
type Occasion string

// The occasions.
const (
	OnApproval Occasion = "approval" // a call waits for a person's approval
	OnFailed   Occasion = "failed"   // a turn ended without an answer
	OnBudget   Occasion = "budget"   // a turn ended because a limit of costs or tokens is reached
)

// Notify is who is notified of what, in any session.
type Notify struct {
	Page  string       `yaml:"page"`  // where people reach the page, e.g. https://agent.example.org; with it, messages have a link
	Rules []NotifyRule `yaml:"rules"` // each that matches sends a message
}

// NotifyRule notifies one destination.
type NotifyRule struct {
	On    []Occasion    `yaml:"on"`    // approval, failed or budget
	Agent string        `yaml:"agent"` // pattern; default any
	Via   string        `yaml:"via"`   // the listener that delivers it
	To    string        `yaml:"to"`    // where, in the listener's words: an address, a room, a topic
	After time.Duration `yaml:"after"` // how long to wait; what was answered meanwhile is not sent
}

// maxAfter is the longest wait of a rule.
const maxAfter = 24 * time.Hour

// Validate reports everything that is wrong; each error names its field.
func (n Notify) Validate() error {
	var errs []error
	if n.Page != "" {
		switch u, err := url.Parse(n.Page); {
		case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.Fragment != "" || u.RawQuery != "":
			errs = append(errs, fmt.Errorf("notify.page is %q, want the address of the page, such as https://agent.example.org",
				secret.HideText(n.Page)))
		case u.User != nil:
			errs = append(errs, errors.New("notify.page has a user, which every message would show; remove it"))
		}
	}
	for i, r := range n.Rules {
		errs = append(errs, r.validate(fmt.Sprintf("notify.rules[%d]", i)))
	}
	return errors.Join(errs...)
}

func (r NotifyRule) validate(at string) error {
	var errs []error
	if len(r.On) == 0 {
		errs = append(errs, fmt.Errorf("%s.on is missing, want a list of approval, failed and budget", at))
	}
	for _, o := range r.On {
		if o != OnApproval && o != OnFailed && o != OnBudget {
			errs = append(errs, fmt.Errorf("%s.on has %q, want approval, failed or budget", at, string(o)))
		}
	}
	if _, err := path.Match(r.Agent, ""); err != nil {
		errs = append(errs, fmt.Errorf("%s.agent %q is not a valid pattern: use * for any characters", at, r.Agent))
	}
	if !subject.Valid(r.Via) {
		errs = append(errs, fmt.Errorf("%s.via is %q, want the name of a listener that delivers", at, r.Via))
	}
	if r.To == "" || len(r.To) > event.MaxReplyTo {
		errs = append(errs, fmt.Errorf("%s.to has %d bytes, want 1 to %d", at, len(r.To), event.MaxReplyTo))
	}
	if r.After < 0 || r.After > maxAfter {
		errs = append(errs, fmt.Errorf("%s.after is %s, want 0s to %s", at, r.After, maxAfter))
	}
	return errors.Join(errs...)
}

func (r NotifyRule) matches(agent subject.Agent, o []Occasion) bool {
	if r.Agent != "" {
		if ok, err := path.Match(r.Agent, string(agent)); err != nil || !ok {
			return false
		}
	}
	return slices.ContainsFunc(o, func(one Occasion) bool { return slices.Contains(r.On, one) })
}

// occasions returns what an event of the type is an occasion for.
func occasions(t event.Type, code event.FailCode) []Occasion {
	switch {
	case t == event.TypeToolCallRequest:
		return []Occasion{OnApproval}
	case t == event.TypeTurnFailed && (code == event.FailLimitCost || code == event.FailLimitTokens):
		return []Occasion{OnFailed, OnBudget}
	case t == event.TypeTurnFailed && code.Delivered():
		return []Occasion{OnFailed}
	}
	return nil
}

// Wants reports whether a commit has something to notify people of.
func (o *Outbox) Wants(c event.Commit) bool {
	if len(o.cfg.Notify.Rules) == 0 {
		return false
	}
	for _, e := range c.Events {
		if e.Type == event.TypeToolCallRequest || e.Type == event.TypeTurnFailed {
			return true
		}
	}
	return false
}

// notices returns the messages that rules send about an event.
func (o *Outbox) notices(ref subject.Ref, e event.Event, d tool.Delivery) (out []entry) {
	var code event.FailCode
	if err := (event.Visitor{TurnFailed: func(p event.TurnFailed) { code = p.Code }}).Visit(e); err != nil {
		return nil
	}
	for _, r := range o.cfg.Notify.Rules {
		if !r.matches(ref.Agent, occasions(e.Type, code)) {
			continue
		}
		n := entry{Ref: ref, Via: subject.Writer(r.Via), Delivery: d}
		n.Delivery.To, n.Delivery.InReplyTo = r.To, ""
		if d.Kind != tool.KindApproval {
			n.Delivery.Kind, n.Delivery.Text = tool.KindNotice, fmt.Sprintf("Session %s: %s", ref, d.Text)
		}
		if r.After > 0 {
			n.Delay = o.now().Add(r.After).UTC()
		}
		out = append(out, n)
	}
	return out
}

// link returns the address of the page at the session; empty if it is not known.
func (o *Outbox) link(ref subject.Ref) string {
	if o.cfg.Notify.Page == "" {
		return ""
	}
	return fmt.Sprintf("%s/#/%s/%s", strings.TrimSuffix(o.cfg.Notify.Page, "/"), ref.Agent, ref.Session)
}
