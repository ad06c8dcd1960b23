package access

import (
	"crypto/hkdf"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/people"
	"skandha.dev/services/uibridge/contract"
)

// checkPeople checks what the bridge needs to know about people; core checks the rest.
func (c Config) checkPeople() error {
	_, err := people.New(c.People)
	errs := []error{err}
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("people."+format, args...)) }
	taken := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(c.People)) {
		p := c.People[name]
		if name == Owner {
			bad("%s: this name is reserved for the owner's token; choose another one", name)
		}
		errs = append(errs, checkRights("people."+name+".rights", p.Rights))
		if p.OIDC != (people.Login{}) && c.OIDC.Issuer == "" {
			bad("%s.oidc: ui.oidc.issuer is missing", name)
		}
		for field, value := range map[string]string{"subject": p.OIDC.Subject, "email": strings.ToLower(p.OIDC.Email)} {
			if other := taken[field+value]; value != "" && other != "" {
				bad("%s.oidc.%s: %q is that of %s, too; it can be only one person", name, field, value, other)
			}
			taken[field+value] = name
		}
	}
	return errors.Join(errs...)
}

func checkRights(field string, byAgent map[string][]string) error {
	var errs []error
	for _, agent := range slices.Sorted(maps.Keys(byAgent)) {
		if _, err := subject.Parse[subject.Agent](agent); agent != people.Everywhere && err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", field, err))
		}
		for _, r := range byAgent[agent] {
			if !slices.Contains(contract.AllRights(), contract.Right(r)) {
				errs = append(errs, fmt.Errorf("%s.%s: %q: want see, talk, approve or administer", field, agent, r))
			}
		}
	}
	return errors.Join(errs...)
}

// personOf returns the principal of a person, without what a login adds.
func personOf(name string, conf people.Person) contract.Principal {
	p := contract.Principal{Name: name, Writer: people.Writer(name), Person: true}
	given := conf.Rights
	if given == nil {
		given = map[string][]string{people.Everywhere: {string(contract.See), string(contract.Talk), string(contract.Approve)}}
	}
	return granted(p, given)
}

// granted returns the principal with the rights by agent, in addition to those that it has.
func granted(p contract.Principal, byAgent map[string][]string) contract.Principal {
	was, all := p, map[subject.Agent]bool{}
	for a := range p.ByAgent {
		all[a] = true
	}
	for a := range byAgent {
		if a != people.Everywhere {
			all[subject.Agent(a)] = true
		}
	}
	p.Rights = union(was.Rights, byAgent[people.Everywhere])
	p.ByAgent, p.Agents = nil, nil
	for a := range all {
		before, listed := was.ByAgent[a]
		if !listed {
			before = was.Rights
		}
		more, listed := byAgent[string(a)]
		if !listed {
			more = byAgent[people.Everywhere]
		}
		if p.ByAgent == nil {
			p.ByAgent = map[subject.Agent][]contract.Right{}
		}
		p.ByAgent[a] = union(before, more)
	}
	if len(p.Rights) == 0 {
		p.Agents = slices.Sorted(maps.Keys(p.ByAgent))
	}
	return p
}

func union(rights []contract.Right, more []string) []contract.Right {
	return slices.DeleteFunc(contract.AllRights(), func(r contract.Right) bool {
		return !slices.Contains(rights, r) && !slices.Contains(more, string(r))
	})
}

// derived returns a key for one purpose, from the owner's token.
func derived(owner, purpose string) ([]byte, error) {
	return hkdf.Key(sha256.New, []byte(owner), nil, "skandha ui "+purpose, sha256.Size)
}

// personKey signs the logins of a person with the provider. It changes with what identifies the
// person there, so that their logins end then.
func personKey(owner string, provider OIDC, name string, as people.Login) ([]byte, error) {
	if owner == "" {
		return nil, fmt.Errorf("people.%s.oidc: logins are signed with a key from the owner's token, and there is none; "+
			"set ui.owner or a data directory", name)
	}
	return derived(owner, fmt.Sprintf("person v1 %q %q %q %q %q", name, provider.Issuer, provider.ClientID, as.Subject, as.Email))
}
