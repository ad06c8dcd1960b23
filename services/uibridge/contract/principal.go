package contract

import (
	"context"
	"fmt"
	"slices"
	"time"

	"skandha.dev/pkg/subject"
)

// Right is a permission of a token.
type Right string

// The rights. No right includes another.
const (
	See        Right = "see"        // sessions, events, tools, plugins, artifacts, listeners, the outbox
	Talk       Right = "talk"       // inputs, cancels and slash commands
	Approve    Right = "approve"    // answers to confirmation requests
	Administer Right = "administer" // plugins, the outbox, switches of cameras and microphones
)

// AllRights returns all rights.
func AllRights() []Right { return []Right{See, Talk, Approve, Administer} }

// Principal is the holder of a token, or a person.
type Principal struct {
	Name   string          `json:"name"`             // the token's, or the person's
	Writer subject.Writer  `json:"writer"`           // its writer name on the bus, "ui-<name>"
	Rights []Right         `json:"rights"`           //
	Agents []subject.Agent `json:"agents,omitempty"` // that it may reach; empty: all
	// ByAgent has the rights with some agents, instead of Rights.
	ByAgent map[subject.Agent][]Right `json:"by_agent,omitempty"`
	Person  bool                      `json:"person,omitempty"` // the name is that of a person in the configuration
	Expires time.Time                 `json:"expires,omitzero"` // nothing is allowed from then on, on open connections either
	Began   time.Time                 `json:"-"`                // of a browser: when the person has shown who they are
	Login   string                    `json:"-"`                // of a browser, which can log out; empty for the token itself
}

// Require returns nil if the principal may use the right with the agent, or else an error
// that says why not. For an empty agent, it is enough to have the right with any of them.
func (p Principal) Require(r Right, a subject.Agent) error {
	switch {
	case !p.Expires.IsZero() && !time.Now().Before(p.Expires):
		return &Error{Code: CodeUnauthenticated, Message: "the token has expired"}
	case !slices.Contains(p.rights(a), r):
		return &Error{Code: CodeForbidden, Message: fmt.Sprintf("%s lacks the %q right%s", p.who(), r, with(p.ByAgent, a))}
	case a != "" && len(p.Agents) > 0 && !slices.Contains(p.Agents, a):
		return &Error{Code: CodeForbidden, Message: fmt.Sprintf("%s may not access agent %s", p.who(), a)}
	}
	return nil
}

// rights returns the rights with an agent; with an empty one, those with any.
func (p Principal) rights(a subject.Agent) []Right {
	if a == "" {
		all := slices.Clone(p.Rights)
		for _, more := range p.ByAgent {
			all = append(all, more...)
		}
		return all
	}
	if own, is := p.ByAgent[a]; is {
		return own
	}
	return p.Rights
}

func (p Principal) who() string {
	if p.Person {
		return p.Name
	}
	return "token " + p.Name
}

func with(byAgent map[subject.Agent][]Right, a subject.Agent) string {
	if a == "" || len(byAgent) == 0 {
		return ""
	}
	return " with agent " + string(a)
}

// Everywhere returns nil if the principal may use the right in what concerns all agents, or else
// an error.
func (p Principal) Everywhere(r Right) error {
	if len(p.Agents) > 0 {
		return &Error{
			Code: CodeForbidden,
			Message: fmt.Sprintf(
				"%s is limited to the agents %v, but this request concerns all agents", p.who(), p.Agents),
		}
	}
	for a, rights := range p.ByAgent {
		if !slices.Contains(rights, r) {
			return p.Require(r, a)
		}
	}
	return p.Require(r, "*") // any agent that is not listed
}

type principalKey struct{}

// WithPrincipal returns ctx with the requester's principal, for handlers behind the access
// layer.
func WithPrincipal(ctx context.Context, p Principal) context.Context {
	return context.WithValue(ctx, principalKey{}, p)
}

// PrincipalOf returns the requester's principal. Without the access layer it returns the
// zero Principal, which has no rights.
func PrincipalOf(ctx context.Context) Principal {
	p, _ := ctx.Value(principalKey{}).(Principal)
	return p
}
