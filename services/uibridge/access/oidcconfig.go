package access

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"time"

	"skandha.dev/services/internal/hosts"
)

// The defaults of [OIDC].
const (
	DefaultSession     = 12 * time.Hour
	defaultGroupsClaim = "groups"
	defaultLabel       = "your organisation"
)

// OIDC configures the login of people with a provider of OpenID Connect. The provider must know the
// redirect URI <ui.url>/v1/auth/oidc/callback.
type OIDC struct {
	Issuer       string   `yaml:"issuer"`        // URL of the provider; empty: people log in with tokens alone
	ClientID     string   `yaml:"client_id"`     //
	ClientSecret string   `yaml:"client_secret"` // env:NAME, file:PATH or the secret; empty for a public client
	Label        string   `yaml:"label"`         // on the button: Log in with LABEL; default "your organisation"
	Scopes       []string `yaml:"scopes"`        // besides openid; default email, profile
	// Groups gives people rights by the values of a claim, in addition to their own: by value, then by
	// agent as in people.NAME.rights. The person must be in people, too.
	Groups      map[string]map[string][]string `yaml:"groups"`
	GroupsClaim string                         `yaml:"groups_claim"` // default groups
	Session     time.Duration                  `yaml:"session"`      // after which people must log in again; default 12h
}

func (o OIDC) withDefaults() OIDC {
	o.GroupsClaim, o.Label = cmp.Or(o.GroupsClaim, defaultGroupsClaim), cmp.Or(o.Label, defaultLabel)
	o.Session = cmp.Or(o.Session, DefaultSession)
	if o.Scopes == nil {
		o.Scopes = []string{"email", "profile"}
	}
	return o
}

func (o OIDC) validate() error {
	if o.Issuer == "" {
		if o.ClientID+o.ClientSecret != "" || len(o.Groups) > 0 {
			return errors.New("oidc.issuer is missing; want the URL of the provider")
		}
		return nil
	}
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("oidc."+format, args...)) }
	u, err := url.Parse(o.Issuer)
	switch {
	case err != nil || u.Host == "" || u.RawQuery+u.Fragment != "" || u.User != nil || u.Scheme != "https" && u.Scheme != "http":
		bad("issuer is %q, want a URL such as https://login.example.org", o.Issuer)
	case u.Scheme == "http" && !hosts.Loopback(u.Hostname()):
		bad("issuer is %q, want https; http is accepted on this machine alone", o.Issuer)
	}
	if o.ClientID == "" {
		bad("client_id is missing; the provider gives it")
	}
	if o.Session < time.Minute || o.Session > 30*24*time.Hour {
		bad("session is %s, want 1m to 720h", o.Session)
	}
	for _, g := range slices.Sorted(maps.Keys(o.Groups)) {
		errs = append(errs, checkRights("oidc.groups."+g, o.Groups[g]))
	}
	return errors.Join(errs...)
}
