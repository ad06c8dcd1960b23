package chat

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"skandha.dev/services/internal/secret"
)

// Form is what the names of a network's rooms or accounts look like.
type Form struct {
	Match func(string) bool
	Want  string // e.g. "the id of a channel, such as C0123456789"
}

func (f Form) check(field, name string) error {
	if f.Match(name) {
		return nil
	}
	return fmt.Errorf("%s: %q is not %s", field, name, f.Want)
}

// CheckNames reports every name of a room or an account that cannot be one of the network.
func (c Config) CheckNames(room, account Form) error {
	var errs []error
	accounts := func(field string, names []string) {
		for i, a := range names {
			if a != Anybody {
				errs = append(errs, account.check(fmt.Sprintf("%s[%d]", field, i), a))
			}
		}
	}
	accounts("allow", c.Allow)
	accounts("approve", c.Approve)
	for _, name := range slices.Sorted(maps.Keys(c.Rooms)) {
		errs = append(errs, room.check("rooms", name))
		accounts("rooms."+name+".allow", c.Rooms[name].Allow)
		accounts("rooms."+name+".approve", c.Rooms[name].Approve)
	}
	return errors.Join(errs...)
}

// ReadToken reads the token that a field of the configuration names. The network says what it must
// look like.
func ReadToken(field, source string, check func(string) error) (string, error) {
	t, err := secret.Read(source)
	if err == nil {
		err = check(t)
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", field, err)
	}
	return t, nil
}

// Named reports whether a field names a token.
func Named(field, source string) error {
	if source == "" {
		return fmt.Errorf("%s is empty; write env:NAME or file:PATH", field)
	}
	return nil
}
