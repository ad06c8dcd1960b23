package slack

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"skandha.dev/services/internal/bounds"
	"skandha.dev/services/listener/chat"
)

// Config of a gateway. Rooms are ids of channels, such as "C0123456789"; accounts are ids of users.
type Config struct {
	chat.Config `yaml:",inline"`

	AppToken string `yaml:"app_token"` // xapp-…, for Socket Mode: env:NAME or file:PATH
	BotToken string `yaml:"bot_token"` // xoxb-…: env:NAME or file:PATH
	API      string `yaml:"api" default:"https://slack.com/api"`
}

var (
	channelID = regexp.MustCompile(`^[CG][A-Z0-9]{2,20}$`)
	directID  = regexp.MustCompile(`^D[A-Z0-9]{2,20}$`)
	userID    = regexp.MustCompile(`^[UW][A-Z0-9]{2,20}$`)
	botID     = regexp.MustCompile(`^B[A-Z0-9]{2,20}$`)
	timestamp = regexp.MustCompile(`^[0-9]{1,12}\.[0-9]{1,8}$`)
)

var (
	rooms    = chat.Form{Match: channelID.MatchString, Want: "the id of a channel, such as C0123456789"}
	accounts = chat.Form{
		Match: func(id string) bool { return userID.MatchString(id) || botID.MatchString(id) },
		Want:  "the id of a user, such as U0123456789, or of an app's bot, such as B0123456789",
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
	errs := []error{
		c.Config.Validate(), c.CheckNames(rooms, accounts), bounds.Check("", c), chat.Named("app_token", c.AppToken),
		chat.Named("bot_token", c.BotToken), chat.CheckBase("api", c.API),
	}
	return errors.Join(errs...)
}

// CheckSecrets reads the secrets and reports everything that is wrong with them.
func (c Config) CheckSecrets() error {
	_, _, err := c.tokens()
	return err
}

func (c Config) tokens() (app, bot string, err error) {
	begins := func(prefix string) func(string) error {
		return func(t string) error {
			if !strings.HasPrefix(t, prefix) || strings.ContainsAny(t, " \t\r\n\x00") {
				return fmt.Errorf("it does not begin with %s, or has white space", prefix)
			}
			return nil
		}
	}
	app, appErr := chat.ReadToken("app_token", c.AppToken, begins("xapp-"))
	bot, botErr := chat.ReadToken("bot_token", c.BotToken, begins("xoxb-"))
	return app, bot, errors.Join(appErr, botErr)
}
