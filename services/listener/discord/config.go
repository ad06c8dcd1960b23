package discord

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"skandha.dev/services/internal/bounds"
	"skandha.dev/services/internal/secret"
	"skandha.dev/services/listener/chat"
)

// Config of a gateway. Rooms are ids of channels; accounts are ids of users.
type Config struct {
	chat.Config `yaml:",inline"`

	Token string `yaml:"token"` // of the bot: env:NAME or file:PATH
	API   string `yaml:"api" default:"https://discord.com/api/v10"`
}

var snowflake = regexp.MustCompile(`^[1-9][0-9]{4,19}$`)

func (c Config) withDefaults() Config {
	c = bounds.Filled(c)
	c.Config = c.Config.WithDefaults()
	return c
}

// Validate reports everything that is wrong; each error names its field.
func (c Config) Validate() error {
	c = c.withDefaults()
	errs := []error{c.Config.Validate(), bounds.Check("", c), chat.CheckBase("api", c.API)}
	if c.Token == "" {
		errs = append(errs, errors.New("token is empty; write env:NAME or file:PATH"))
	}
	for name := range c.Rooms {
		if !snowflake.MatchString(name) {
			errs = append(errs, fmt.Errorf("rooms: %q is not the id of a channel, such as \"1100000000000000000\"", name))
		}
	}
	for _, a := range slices.Concat(c.Allow, c.Approve) {
		if a != chat.Anybody && !snowflake.MatchString(a) {
			errs = append(errs, fmt.Errorf("allow and approve: %q is not the id of a user, such as \"1100000000000000000\"", a))
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
	if err == nil && strings.ContainsAny(t, " \t\r\n\x00") {
		err = errors.New("it has white space; want the token alone, without \"Bot\"")
	}
	if err != nil {
		return "", fmt.Errorf("token: %w", err)
	}
	return t, nil
}
