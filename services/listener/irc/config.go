package irc

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"skandha.dev/services/internal/bounds"
	"skandha.dev/services/internal/secret"
	"skandha.dev/services/listener/chat"
)

// Identify is what identifies a person.
type Identify string

// What identifies a person; see the package's documentation.
const (
	ByAccount Identify = "account"
	ByHost    Identify = "host"
	ByNick    Identify = "nick"
)

// Config of a gateway. Rooms are channels, such as "#ops".
type Config struct {
	chat.Config `yaml:",inline"`

	Server   string `yaml:"server"`   // host:port; usually port 6697
	Insecure bool   `yaml:"insecure"` // connect without TLS; with passwords only on this machine
	CA       string `yaml:"ca"`       // file of the certificate authorities to trust; default: the system's
	Nick     string `yaml:"nick" default:"skandha"`
	Password string `yaml:"password"` // of the server: env:NAME or file:PATH
	// the gateway's services account, for SASL
	Account         string            `yaml:"account"`
	AccountPassword string            `yaml:"account_password"` // env:NAME or file:PATH
	Keys            map[string]string `yaml:"keys"`             // of channels that need one: env:NAME or file:PATH
	Identify        Identify          `yaml:"identify"`         // account, host or nick; default account
	// a second connection, as NICK_, that sees in channels what has arrived; default true
	Watch *bool `yaml:"watch"`
	// lines of one answer; what is beyond is left out
	MaxLines int `yaml:"max_lines" default:"20" min:"2" max:"200"`
	// between lines, after a burst of five
	Pace time.Duration `yaml:"pace" default:"700ms" min:"1ms" max:"10s"`
	// how often the server must show that it is there
	Ping time.Duration `yaml:"ping" default:"60s" min:"1s" max:"10m"`
}

var (
	channelName = regexp.MustCompile(`^[#&+!][^\x00-\x20,\x07\x7f]{1,199}$`)
	nickName    = regexp.MustCompile(`^[A-Za-z\[\]\\^_` + "`" + `{|}][A-Za-z0-9\[\]\\^_` + "`" + `{|}-]{0,29}$`)
)

func (c Config) withDefaults() Config {
	c = bounds.Filled(c)
	c.Config = c.Config.WithDefaults()
	if c.Identify == "" {
		c.Identify = ByAccount
	}
	if c.Watch == nil {
		c.Watch = new(true)
	}
	return c
}

// Validate reports everything that is wrong; each error names its field.
func (c Config) Validate() error {
	c = c.withDefaults()
	errs := []error{c.Config.Validate(), bounds.Check("", c)}
	host, _, err := net.SplitHostPort(c.Server)
	if err != nil || host == "" {
		errs = append(errs, fmt.Errorf("server is %q, want host:port, such as irc.example.org:6697", c.Server))
	}
	for name := range c.Rooms {
		if !channelName.MatchString(name) {
			errs = append(errs, fmt.Errorf("rooms: %q is not the name of a channel, such as #ops", name))
		}
	}
	for name := range c.Keys {
		if _, ok := c.Rooms[name]; !ok {
			errs = append(errs, fmt.Errorf("keys.%s: rooms has no such channel; spell it as there", name))
		}
	}
	if !nickName.MatchString(c.Nick) {
		errs = append(errs, fmt.Errorf("nick is %q, want 1 to 30 letters, digits and []\\^_`{|}-", c.Nick))
	}
	if !slices.Contains([]Identify{ByAccount, ByHost, ByNick}, c.Identify) {
		errs = append(errs, fmt.Errorf("identify is %q, want account, host or nick", c.Identify))
	}
	if (c.Account == "") != (c.AccountPassword == "") {
		errs = append(errs, errors.New("account and account_password: set both or none"))
	}
	if c.Insecure && c.Password+c.AccountPassword != "" && !loopback(host) {
		errs = append(errs, errors.New("insecure: a password would be readable on the way; remove insecure, or the password"))
	}
	return errors.Join(errs...)
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// secrets are those of a configuration, as they were read.
type secrets struct {
	password, account string
	keys              map[string]string // by canonical channel
	tls               *tls.Config       // nil: without TLS
}

// CheckSecrets reads the secrets and reports everything that is wrong with them.
func (c Config) CheckSecrets() error {
	_, err := c.secrets()
	return err
}

func (c Config) secrets() (s secrets, err error) {
	var errs []error
	read := func(field, name string) string {
		if name == "" {
			return ""
		}
		v, err := secret.Read(name)
		if err == nil && strings.ContainsAny(v, "\r\n\x00") {
			err = errors.New("it has several lines")
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", field, err))
		}
		return v
	}
	s.password, s.account = read("password", c.Password), read("account_password", c.AccountPassword)
	s.keys = map[string]string{}
	for room, name := range c.Keys {
		s.keys[fold(room)] = read("keys."+room, name)
	}
	if !c.Insecure {
		host, _, _ := net.SplitHostPort(c.Server) // Validate has checked it
		s.tls = &tls.Config{ServerName: host, MinVersion: tls.VersionTLS12}
		if c.CA != "" {
			pem, err := os.ReadFile(c.CA)
			s.tls.RootCAs = x509.NewCertPool()
			if err == nil && !s.tls.RootCAs.AppendCertsFromPEM(pem) {
				err = fmt.Errorf("%s holds no certificate in PEM", c.CA)
			}
			if err != nil {
				errs = append(errs, fmt.Errorf("ca: %w", err))
			}
		}
	}
	return s, errors.Join(errs...)
}

// fold returns a name as networks compare it, at least: letters of ASCII in lower case. Many
// networks also take []\~ for {}|^, and then need the spelling of the server; taking them for one
// here would mix up two people on networks that do not.
func fold(name string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'A' && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}, name)
}

// account returns an identity in its canonical form.
func (c Config) account(name string) string {
	if c.Identify == ByHost {
		return name // the user part need not be the same in another case
	}
	return fold(name)
}
