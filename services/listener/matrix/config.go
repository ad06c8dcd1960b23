package matrix

import (
	"errors"
	"fmt"
	"regexp"
	"slices"

	"skandha.dev/services/internal/bounds"
	"skandha.dev/services/internal/secret"
	"skandha.dev/services/listener/chat"
)

// Config of a gateway. Rooms are room ids, such as "!abc:example.org"; accounts are user ids.
type Config struct {
	chat.Config `yaml:",inline"`

	Homeserver string `yaml:"homeserver"` // URL
	User       string `yaml:"user"`       // the gateway's user id, such as @agent:example.org
	Token      string `yaml:"token"`      // access token: env:NAME or file:PATH
}

var (
	userID = regexp.MustCompile(`^@[^\x00-\x20:/?#]{1,200}:[^\x00-\x20/?#]{1,200}$`)
	roomID = regexp.MustCompile(`^![^\x00-\x20/?#]{1,250}$`)
)

func (c Config) withDefaults() Config {
	c = bounds.Filled(c)
	c.Config = c.Config.WithDefaults()
	return c
}

// Validate reports everything that is wrong; each error names its field.
func (c Config) Validate() error {
	c = c.withDefaults()
	errs := []error{c.Config.Validate(), bounds.Check("", c), chat.CheckBase("homeserver", c.Homeserver)}
	if !userID.MatchString(c.User) {
		errs = append(errs, fmt.Errorf("user is %q, want a user id, such as @agent:example.org", c.User))
	}
	if c.Token == "" {
		errs = append(errs, errors.New("token is empty; write env:NAME or file:PATH"))
	}
	for name := range c.Rooms {
		if !roomID.MatchString(name) {
			errs = append(errs, fmt.Errorf("rooms: %q is not a room id, such as !abc:example.org; a client shows it in the room's settings", name))
		}
	}
	for _, a := range slices.Concat(c.Allow, c.Approve) {
		if a != chat.Anybody && !userID.MatchString(a) {
			errs = append(errs, fmt.Errorf("allow and approve: %q is not a user id, such as @ann:example.org", a))
		}
	}
	return errors.Join(errs...)
}

// CheckSecrets reads the secrets and reports everything that is wrong with them.
func (c Config) CheckSecrets() error {
	_, err := c.token()
	return err
}

func (c Config) token() (string, error) {
	t, err := secret.Read(c.Token)
	if err != nil {
		return "", fmt.Errorf("token: %w", err)
	}
	return t, nil
}
