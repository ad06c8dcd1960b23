package discord

import (
	"errors"
	"regexp"
	"strings"

	"skandha.dev/services/internal/bounds"
	"skandha.dev/services/listener/chat"
)

// Config of a gateway. Rooms are ids of channels; accounts are ids of users.
type Config struct {
	chat.Config `yaml:",inline"`

	Token string `yaml:"token"` // of the bot: env:NAME or file:PATH
	API   string `yaml:"api" default:"https://discord.com/api/v10"`
}

var snowflake = regexp.MustCompile(`^[1-9][0-9]{4,19}$`)

var (
	rooms    = chat.Form{Match: snowflake.MatchString, Want: "the id of a channel, such as 1100000000000000000"}
	accounts = chat.Form{Match: snowflake.MatchString, Want: "the id of a user, such as 1100000000000000000"}
)

func (c Config) withDefaults() Config {
	c = bounds.Filled(c)
	c.Config = c.Config.WithDefaults()
	return c
}

// Validate reports everything that is wrong; each error names its field.
func (c Config) Validate() error {
	c = c.withDefaults()
	errs := []error{c.Config.Validate(), c.CheckNames(rooms, accounts), bounds.Check("", c), chat.Named("token", c.Token), chat.CheckBase("api", c.API)}
	return errors.Join(errs...)
}

// CheckSecrets reads the secrets and reports everything that is wrong with them.
func (c Config) CheckSecrets() error {
	_, err := c.token()
	return err
}

func (c Config) token() (string, error) {
	return chat.ReadToken("token", c.Token, func(t string) error {
		if strings.ContainsAny(t, " \t\r\n\x00") {
			return errors.New("it has white space; want the token alone, without \"Bot\"")
		}
		return nil
	})
}
