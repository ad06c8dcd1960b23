package contract

import (
	"context"
	"fmt"
	"slices"
	"time"

	"skandha.dev/pkg/subject"
)

// Right is something that a token allows.
type Right string

// The rights. None includes another.
const (
	See        Right = "see"        // sessions, events, tools, plugins, artifacts
	Talk       Right = "talk"       // inputs, cancels and slash commands
	Approve    Right = "approve"    // answers to confirmation requests
	Administer Right = "administer" // plugins: suspend, resume, unload
)

// AllRights lists the rights.
func AllRights() []Right { return []Right{See, Talk, Approve, Administer} }

// Principal is who speaks: a token's holder.
type Principal struct {
	Name    string          `json:"name"`             // the token's
	Writer  subject.Writer  `json:"writer"`           // as whom he writes on the bus, "ui-<name>"
	Rights  []Right         `json:"rights"`           //
	Agents  []subject.Agent `json:"agents,omitempty"` // that he may reach; empty: every one
	Expires time.Time       `json:"expires,omitzero"` // from then on nothing is allowed, on open connections too
	Login   string          `json:"-"`                // of a browser, which can log out; empty: the token itself
}

// Require says why the principal may not use the right with the agent; nil: he may.
// An empty agent is not asked about.
func (p Principal) Require(r Right, a subject.Agent) error {
	switch {
	case !p.Expires.IsZero() && !time.Now().Before(p.Expires):
		return &Error{Code: CodeUnauthenticated, Message: "the token has expired"}
	case !slices.Contains(p.Rights, r):
		return &Error{Code: CodeForbidden, Message: "the token " + p.Name + " has not the right to " + string(r)}
	case a != "" && len(p.Agents) > 0 && !slices.Contains(p.Agents, a):
		return &Error{Code: CodeForbidden, Message: "the token " + p.Name + " may not reach the agent " + string(a)}
	}
	return nil
}

// Everywhere says why the principal may not do what concerns every agent; nil: it may.
func (p Principal) Everywhere() error {
	if len(p.Agents) == 0 {
		return nil
	}
	return &Error{Code: CodeForbidden, Message: fmt.Sprintf("the token %s is limited to the agents %v, and this concerns every agent", p.Name, p.Agents)}
}

type principalKey struct{}

// WithPrincipal is ctx with who is asking, for handlers behind the access layer.
func WithPrincipal(ctx context.Context, p Principal) context.Context {
	return context.WithValue(ctx, principalKey{}, p)
}

// PrincipalOf is who is asking. Without the access layer in front it is nobody, who
// may do nothing.
func PrincipalOf(ctx context.Context) Principal {
	p, _ := ctx.Value(principalKey{}).(Principal)
	return p
}
