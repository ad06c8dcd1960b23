package telegram

import (
	"errors"
	"regexp"

	"skandha.dev/services/internal/bounds"
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

var (
	rooms    = chat.Form{Match: groupID.MatchString, Want: "the id of a group, such as -1001234567890"}
	accounts = chat.Form{
		Match: userID.MatchString, Want: "the id of a user, such as 123456789; a user name can change hands",
	}
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
		if !botToken.MatchString(t) {
			return errors.New("it is not the token of a bot, such as 123456:ABC-DEF")
		}
		return nil
	})
}
