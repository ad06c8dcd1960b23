package matrix

import (
	"errors"
	"fmt"
	"regexp"

	"skandha.dev/services/internal/bounds"
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

var (
	rooms = chat.Form{
		Match: roomID.MatchString, Want: "a room id, such as !abc:example.org; a client shows it in the room's settings",
	}
	accounts = chat.Form{Match: userID.MatchString, Want: "a user id, such as @ann:example.org"}
)

func (c Config) withDefaults() Config {
	c = bounds.Filled(c)
	c.Config = c.Config.WithDefaults()
	return c
}

// Validate reports everything that is wrong; each error names its field.
func (c Config) Validate() error {
	c = c.withDefaults()
	errs := []error{c.Config.Validate(), c.CheckNames(rooms, accounts), bounds.Check("", c), chat.Named("token", c.Token), chat.CheckBase("homeserver", c.Homeserver)}
	if !userID.MatchString(c.User) {
		errs = append(errs, fmt.Errorf("user is %q, want a user id, such as @agent:example.org", c.User))
	}
	return errors.Join(errs...)
}

// CheckSecrets reads the secrets and reports everything that is wrong with them.
func (c Config) CheckSecrets() error {
	_, err := c.token()
	return err
}

func (c Config) token() (string, error) {
	return chat.ReadToken("token", c.Token, func(string) error { return nil })
}
