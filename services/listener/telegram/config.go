package telegram

import (
	"errors"
	"fmt"
	"regexp"
	"slices"

	"skandha.dev/services/internal/bounds"
	"skandha.dev/services/internal/secret"
	"skandha.dev/services/listener/chat"
)

// Config of a gateway. Rooms are ids of groups, such as "-1001234567890"; accounts are ids of users.
type Config struct {
	chat.Config `yaml:",inline"`

	Token string `yaml:"token"` // of the bot, from @BotFather: env:NAME or file:PATH
	API   string `yaml:"api" default:"https://api.telegram.org"`
}

var (
	groupID  = regexp.MustCompile(`^-[1-9][0-9]{0,18}$`)
	userID   = regexp.MustCompile(`^[1-9][0-9]{0,18}$`)
	botToken = regexp.MustCompile(`^[0-9]{1,20}:[A-Za-z0-9_-]{10,100}$`)
)

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
		if !groupID.MatchString(name) {
			errs = append(errs, fmt.Errorf("rooms: %q is not the id of a group, such as \"-1001234567890\"", name))
		}
	}
	for _, a := range slices.Concat(c.Allow, c.Approve) {
		if a != chat.Anybody && !userID.MatchString(a) {
			errs = append(errs, fmt.Errorf("allow and approve: %q is not the id of a user, such as \"123456789\"; a user name can change hands", a))
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
	if err == nil && !botToken.MatchString(t) {
		err = errors.New("it is not the token of a bot, such as 123456:ABC-DEF")
	}
	if err != nil {
		return "", fmt.Errorf("token: %w", err)
	}
	return t, nil
}
