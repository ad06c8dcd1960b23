package people

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
)

// Config is the section people of the configuration file: people by name.
type Config map[string]Person

// Person is one person.
type Person struct {
	// Groups are names that rules of approvals may use instead of the person's.
	Groups []string `yaml:"groups"`
	// Accounts are the writers, such as cli, and the accounts in chat networks, such as irc/ann, that
	// are this person. The writer ui-NAME always is.
	Accounts []string `yaml:"accounts"`
	// Rights are what the person may do on the page and in the API: see, talk, approve, administer, by
	// agent. "*" is every agent that is not listed. Default: see, talk and approve for "*".
	Rights map[string][]string `yaml:"rights"`
	// Token is a token with which the person logs in: env:NAME, file:PATH or the token itself.
	Token string `yaml:"token"`
	// OIDC is how the provider of ui.oidc knows the person.
	OIDC Login `yaml:"oidc"`
}

// Login identifies a person at an OpenID Connect provider. One of the fields is enough.
type Login struct {
	Subject string `yaml:"subject"` // the claim sub
	Email   string `yaml:"email"`   // the claim email; it counts only if the provider has verified it
}

// Who returns the person whom a provider of OpenID Connect knows by the subject or, if the
// configuration does not name their subject, by the verified e-mail address; empty if there is none.
func (c Config) Who(sub, email string) string {
	for name, p := range c {
		if sub != "" && p.OIDC.Subject == sub {
			return name
		}
	}
	for name, p := range c {
		if p.OIDC.Subject == "" && email != "" && strings.EqualFold(p.OIDC.Email, email) {
			return name
		}
	}
	return ""
}

// HaveTokens reports whether anybody has a token.
func (c Config) HaveTokens() bool {
	for _, p := range c {
		if p.Token != "" {
			return true
		}
	}
	return false
}

// Everywhere means every agent in [Person.Rights].
const Everywhere = "*"

// Writer returns the name as which a person writes by the UI bridge.
func Writer(name string) subject.Writer { return subject.Person(name) }

// Directory is a checked list of people. It is safe for concurrent use.
type Directory struct {
	people   Config
	accounts map[string]string // names by account
}

// valid are names of people and groups.
var valid = regexp.MustCompile(`^[A-Za-z0-9_-]{1,61}$`)

// New checks the configuration. Each error names its field.
func New(c Config) (*Directory, error) {
	d := &Directory{people: maps.Clone(c), accounts: map[string]string{}}
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("people."+format, args...)) }
	alike, groups := map[string]string{}, map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(c)) {
		if !valid.MatchString(name) {
			bad("%s: the name has to be 1 to 61 characters of A-Z a-z 0-9 _ -", name)
		}
		if other := alike[strings.ToLower(name)]; other != "" {
			bad("%s: differs from %s in upper and lower case alone; choose another name", name, other)
		}
		alike[strings.ToLower(name)] = name
		for i, g := range c[name].Groups {
			if !valid.MatchString(g) {
				bad("%s.groups[%d] is %q, want 1 to 61 characters of A-Z a-z 0-9 _ -", name, i, g)
			}
			groups[g] = name
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c)) {
		if of := groups[name]; of != "" {
			bad("%s: %s has a group of this name; rename one of them", name, of)
		}
		d.accounts[string(Writer(name))] = name
	}
	for _, name := range slices.Sorted(maps.Keys(c)) {
		for i, a := range c[name].Accounts {
			other := d.accounts[a]
			if err := checkAccount(a); err != nil {
				bad("%s.accounts[%d]: %w", name, i, err)
			} else if other != "" && other != name {
				bad("%s.accounts[%d]: %q is an account of %s, too; it can be only one person", name, i, a, other)
			}
			d.accounts[a] = name
		}
	}
	return d, errors.Join(errs...)
}

func checkAccount(a string) error {
	writer, from, named := strings.Cut(a, "/")
	if _, err := subject.Parse[subject.Writer](writer); err != nil {
		return fmt.Errorf("%q: want a writer, such as cli, or a writer and an account, such as irc/ann: %w", a, err)
	}
	if named && (from == "" || len(from) > event.MaxFrom) {
		return fmt.Errorf("%q: after the slash there are %d bytes, want 1 to %d", a, len(from), event.MaxFrom)
	}
	return nil
}

// Person returns the name of the person behind a writer and what it says about the sender; empty if
// the configuration names no such person.
func (d *Directory) Person(by subject.Writer, from string) string {
	if from == "" {
		return d.accounts[string(by)]
	}
	return d.accounts[string(by)+"/"+from]
}

// Names reports whether the configuration names the person or, if it is not a person's name, whether it
// names a person of the group.
func (d *Directory) Names(name string) bool { return len(d.In([]string{name})) > 0 }

// Is reports whether the configuration names the person.
func (d *Directory) Is(person string) bool {
	_, is := d.people[person]
	return is
}

// In lists the people that are meant by names of people and groups; everybody if there are no names.
func (d *Directory) In(names []string) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(d.people)), func(p string) bool {
		return len(names) > 0 && !slices.Contains(names, p) &&
			!slices.ContainsFunc(d.people[p].Groups, func(g string) bool { return slices.Contains(names, g) })
	})
}
