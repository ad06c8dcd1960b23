package listener

import (
	"errors"
	"fmt"
	"strings"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/configfile"
	"skandha.dev/services/internal/mail"
	"skandha.dev/services/internal/mqttclient"
	"skandha.dev/services/listener/camera"
	"skandha.dev/services/listener/cron"
	"skandha.dev/services/listener/discord"
	"skandha.dev/services/listener/email"
	"skandha.dev/services/listener/irc"
	"skandha.dev/services/listener/matrix"
	"skandha.dev/services/listener/microphone"
	"skandha.dev/services/listener/mqtt"
	"skandha.dev/services/listener/push"
	"skandha.dev/services/listener/sensor"
	"skandha.dev/services/listener/slack"
	"skandha.dev/services/listener/stdio"
	"skandha.dev/services/listener/telegram"
	"skandha.dev/services/listener/web"
	"skandha.dev/services/listener/webhook"
	"skandha.dev/services/listener/websocket"
	"skandha.dev/services/listener/xmpp"
)

// Config is the section listeners of the configuration file, which maps the name of each
// listener to its settings; see the package's documentation.
type Config struct {
	HTTP       web.Config                   `yaml:"http"`
	Stdin      map[string]stdio.Config      `yaml:"stdin"` // one at most
	Webhook    map[string]webhook.Config    `yaml:"webhook"`
	WebSocket  map[string]websocket.Config  `yaml:"websocket"`
	Cron       map[string]cron.Config       `yaml:"cron"`
	Email      map[string]email.Config      `yaml:"email"`
	Push       map[string]push.Config       `yaml:"push"`
	MQTT       map[string]mqtt.Config       `yaml:"mqtt"`
	Sensor     map[string]sensor.Config     `yaml:"sensor"`
	Camera     map[string]camera.Config     `yaml:"camera"`
	Microphone map[string]microphone.Config `yaml:"microphone"`
	IRC        map[string]irc.Config        `yaml:"irc"`
	XMPP       map[string]xmpp.Config       `yaml:"xmpp"`
	Matrix     map[string]matrix.Config     `yaml:"matrix"`
	Telegram   map[string]telegram.Config   `yaml:"telegram"`
	Discord    map[string]discord.Config    `yaml:"discord"`
	Slack      map[string]slack.Config      `yaml:"slack"`

	// Brokers is the section mqtt of the same file.
	Brokers mqttclient.Config `yaml:"-"`

	// Accounts is the section email of the file, which the email listeners refer to.
	Accounts mail.Config `yaml:"-"`
}

// ErrNoSection means that a configuration file has no section listeners.
var ErrNoSection = errors.New("section listeners is missing")

// ReadConfig reads and checks the section of a configuration file; the sections of
// other services are ignored. The error is [ErrNoSection] if there is none, or
// names everything that is wrong, with its line.
func ReadConfig(path string) (Config, error) {
	return configfile.Read(path, ParseConfig, Config.Validate)
}

// ParseConfig decodes the section from the text of a configuration file.
func ParseConfig(file []byte) (c Config, err error) {
	found, err := configfile.Section(file, "listeners", &c)
	if err == nil && !found {
		err = ErrNoSection
	}
	if err != nil {
		return c, err
	}
	if c.Brokers, err = mqttclient.ParseConfig(file); err != nil {
		return c, err
	}
	c.Accounts, err = mail.ParseConfig(file)
	return c, err
}

// CheckFile checks the section as ReadConfig does, and reads the secrets that it
// names, as [New] does.
func CheckFile(path string) error {
	_, err := configfile.Read(path, ParseConfig, func(c Config) error {
		errs := []error{c.Validate()}
		for _, l := range c.all() {
			if l.secrets != nil {
				errs = append(errs, prefixed(l.path(), l.secrets()))
			}
		}
		return errors.Join(errs...)
	})
	return err
}

// Validate reports everything that is wrong; each error names its field.
func (c Config) Validate() error {
	errs := []error{prefixed("http", c.HTTP.Validate())}
	if len(c.Stdin) > 1 {
		errs = append(errs,
			fmt.Errorf("listeners.stdin: %d listeners read standard input, at most one can; remove the others", len(c.Stdin)))
	}
	seen := map[string]string{}
	for _, l := range c.all() {
		where := "listeners." + l.path()
		if _, err := subject.Parse[subject.Writer](l.name); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", where, err))
		}
		if other := seen[l.name]; other != "" {
			errs = append(errs,
				fmt.Errorf("%s: %s has the same name; choose another, as it identifies the listener's inputs", where, other))
		}
		if subject.OwnWriter(subject.Writer(l.name)) {
			errs = append(errs, fmt.Errorf("%s: this name is reserved for core; choose another", where))
		}
		seen[l.name] = where
		errs = append(errs, prefixed(l.path(), l.check()))
		if l.insecure && !c.HTTP.Loopback() {
			errs = append(errs,
				fmt.Errorf("%s.insecure: listeners.http.listen %q is reachable from other machines; listen on 127.0.0.1, or remove insecure",
					where, c.HTTP.Listen))
		}
	}
	return errors.Join(errs...)
}

// prefixed puts the path of the section before each error.
func prefixed(where string, err error) error {
	if err == nil {
		return nil
	}
	var out []error
	for line := range strings.SplitSeq(err.Error(), "\n") {
		out = append(out, errors.New("listeners."+where+"."+line))
	}
	return errors.Join(out...)
}
