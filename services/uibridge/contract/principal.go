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

// Principal is the holder of a token.
type Principal struct {
	Name    string          `json:"name"`             // the token's
	Writer  subject.Writer  `json:"writer"`           // its writer name on the bus, "ui-<name>"
	Rights  []Right         `json:"rights"`           //
	Agents  []subject.Agent `json:"agents,omitempty"` // that it may reach; empty: all
	Expires time.Time       `json:"expires,omitzero"` // nothing is allowed from then on, on open connections either
	Login   string          `json:"-"`                // of a browser, which can log out; empty for the token itself
}

// Require returns nil if the principal may use the right with the agent, or else an error
// that says why not. An empty agent is not checked.
func (p Principal) Require(r Right, a subject.Agent) error {
	switch {
	case !p.Expires.IsZero() && !time.Now().Before(p.Expires):
		return &Error{Code: CodeUnauthenticated, Message: "the token has expired"}
	case !slices.Contains(p.Rights, r):
		return &Error{Code: CodeForbidden, Message: fmt.Sprintf("token %s lacks the %q right", p.Name, r)}
	case a != "" && len(p.Agents) > 0 && !slices.Contains(p.Agents, a):
		return &Error{Code: CodeForbidden, Message: fmt.Sprintf("token %s may not access agent %s", p.Name, a)}
	}
	return nil
}

// Everywhere returns nil if the principal may do what concerns all agents, or else an
// error.
func (p Principal) Everywhere() error {
	if len(p.Agents) == 0 {
		return nil
	}
	return &Error{
		Code: CodeForbidden,
		Message: fmt.Sprintf(
			"token %s is limited to the agents %v, but this request concerns all agents", p.Name, p.Agents),
	}
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
