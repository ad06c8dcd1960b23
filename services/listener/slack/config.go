package slack

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

func (c Config) withDefaults() Config {
	c = bounds.Filled(c)
	c.Config = c.Config.WithDefaults()
	return c
}

// Validate reports everything that is wrong; each error names its field.
func (c Config) Validate() error {
	c = c.withDefaults()
	errs := []error{c.Config.Validate(), bounds.Check("", c), chat.CheckBase("api", c.API)}
	for field, token := range map[string]string{"app_token": c.AppToken, "bot_token": c.BotToken} {
		if token == "" {
			errs = append(errs, fmt.Errorf("%s is empty; write env:NAME or file:PATH", field))
		}
	}
	for name := range c.Rooms {
		if !channelID.MatchString(name) {
			errs = append(errs, fmt.Errorf("rooms: %q is not the id of a channel, such as C0123456789", name))
		}
	}
	for _, a := range slices.Concat(c.Allow, c.Approve) {
		if a != chat.Anybody && !userID.MatchString(a) && !botID.MatchString(a) {
			errs = append(errs, fmt.Errorf("allow and approve: %q is not the id of a user, such as U0123456789, or of an app's bot, such as B0123456789", a))
		}
	}
	return errors.Join(errs...)
}

// CheckSecrets reads the secrets and reports everything that is wrong with them.
func (c Config) CheckSecrets() error {
	_, _, err := c.tokens()
	return err
}

func (c Config) tokens() (app, bot string, err error) {
	read := func(field, name, prefix string) string {
		t, readErr := secret.Read(name)
		if readErr == nil && (!strings.HasPrefix(t, prefix) || strings.ContainsAny(t, " \t\r\n\x00")) {
			readErr = fmt.Errorf("it does not begin with %s, or has white space", prefix)
		}
		if readErr != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", field, readErr))
		}
		return t
	}
	return read("app_token", c.AppToken, "xapp-"), read("bot_token", c.BotToken, "xoxb-"), err
}
