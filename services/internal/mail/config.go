package mail

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/mail"
	"net/url"
	"slices"
	"strings"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/configfile"
	"skandha.dev/services/internal/hosts"
)

// Config is the section email of the configuration file.
type Config struct {
	Accounts map[string]AccountConfig `yaml:"accounts"`
}

// AccountConfig describes one account.
type AccountConfig struct {
	Address  string       `yaml:"address"`  // required
	Name     string       `yaml:"name"`     // beside the address, for people
	User     string       `yaml:"user"`     // at both servers; default the address
	Password string       `yaml:"password"` // env:NAME or file:PATH
	OAuth2   *OAuth2      `yaml:"oauth2"`   // instead of a password
	IMAP     ServerConfig `yaml:"imap"`
	SMTP     ServerConfig `yaml:"smtp"`
	CAFile   string       `yaml:"ca_file"` // certificates that are trusted; default those of the system
	Sent     Sent         `yaml:"sent"`    // how sent mail is filed: copy, server or append; default copy
	Folders  Folders      `yaml:"folders"`
}

// ServerConfig describes how a server is reached.
type ServerConfig struct {
	Host     string   `yaml:"host"`     // required
	Port     int      `yaml:"port"`     // default the usual one for the protocol and the security
	Security Security `yaml:"security"` // tls, starttls or none; default tls
}

// Folders are names of mailboxes.
type Folders struct {
	// Sent is where sent mail is kept. Default: the folder that the server marks \Sent (RFC 6154).
	Sent string `yaml:"sent"`
}

// OAuth2 describes how access tokens are obtained.
type OAuth2 struct {
	TokenURL     string `yaml:"token_url"`     // https; required
	ClientID     string `yaml:"client_id"`     // required
	ClientSecret string `yaml:"client_secret"` // env:NAME or file:PATH; default none
	RefreshToken string `yaml:"refresh_token"` // env:NAME or file:PATH; required
	Scope        string `yaml:"scope"`         // default that of the refresh token
}

// Security is how a connection is protected.
type Security string

// The ways to protect a connection.
const (
	TLS      Security = "tls"      // from the first byte (default)
	StartTLS Security = "starttls" // from a command on; refused if the server does not offer it
	None     Security = "none"     // not at all
)

// Sent is how a copy of sent mail gets into the folder for it.
type Sent string

// The ways. They differ in how surely an unknown outcome is resolved; see package post.
const (
	SentCopy   Sent = "copy"   // the letter is also addressed to the account, and moved on arrival (default)
	SentServer Sent = "server" // the server files it by itself, as Gmail does
	SentAppend Sent = "append" // it is stored by IMAP after it was sent
)

// ReadConfig reads and checks the section of a configuration file; the sections of other
// services are ignored. Without a file or a section there are no accounts. The error lists all
// faults, with their lines.
func ReadConfig(path string) (Config, error) {
	return configfile.Read(path, ParseConfig, Config.Validate)
}

// ParseConfig decodes the section from the text of a configuration file.
func ParseConfig(file []byte) (c Config, err error) {
	_, err = configfile.Section(file, "email", &c)
	return c, err
}

// CheckFile checks the section as ReadConfig does, and reads the secrets and files that it
// names.
func CheckFile(path string) error {
	_, err := configfile.Read(path, ParseConfig, func(c Config) error {
		if err := c.Validate(); err != nil {
			return err
		}
		_, err := Open(c)
		return err
	})
	return err
}

// ReadAccounts reads the section of a configuration file, and the secrets and files that it names.
func ReadAccounts(path string) (*Accounts, error) {
	c, err := ReadConfig(path)
	if err != nil {
		return nil, err
	}
	return Open(c)
}

// Validate reports everything that is wrong; each error names its field.
func (c Config) Validate() error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(c.Accounts)) {
		where := "email.accounts." + name
		if !subject.Valid(name) {
			errs = append(errs, fmt.Errorf("%s: the name is not a valid id; use 1 to %d characters of A-Z a-z 0-9 _ -", where,
				subject.MaxIDLen))
		}
		for _, err := range c.Accounts[name].check() {
			errs = append(errs, fmt.Errorf("%s.%w", where, err))
		}
	}
	return errors.Join(errs...)
}

// check returns everything that is wrong; each error begins with its field.
func (a AccountConfig) check() (errs []error) {
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if parsed, err := mail.ParseAddress(a.Address); err != nil || parsed.Address != a.Address {
		wrong("address is %q, want an address such as agent@example.org", a.Address)
	}
	if strings.ContainsAny(a.Name+a.User, "\r\n") {
		wrong("name or user has a line break; remove it")
	}
	switch {
	case a.Password == "" && a.OAuth2 == nil:
		wrong("password is empty; set it to env:NAME or file:PATH, or set oauth2")
	case a.Password != "" && a.OAuth2 != nil:
		wrong("password and oauth2 are both set; remove one")
	case a.Password != "" && !referred(a.Password):
		wrong("password must not be in the file; write env:NAME or file:PATH")
	}
	if a.OAuth2 != nil {
		errs = append(errs, a.OAuth2.check()...)
	}
	errs = append(errs, a.IMAP.check("imap")...)
	errs = append(errs, a.SMTP.check("smtp")...)
	if !slices.Contains([]Sent{"", SentCopy, SentServer, SentAppend}, a.Sent) {
		wrong("sent is %q, want copy, server or append", string(a.Sent))
	}
	return errs
}

func (s ServerConfig) check(field string) (errs []error) {
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(field+"."+format, args...)) }
	if s.Host == "" || strings.ContainsAny(s.Host, " \t\r\n/:@") && !strings.Contains(s.Host, "::") {
		wrong("host is %q, want the name of a server, without port", s.Host)
	}
	if s.Port < 0 || s.Port > 65535 {
		wrong("port is %d, want 1 to 65535", s.Port)
	}
	if !slices.Contains([]Security{"", TLS, StartTLS, None}, s.Security) {
		wrong("security is %q, want tls, starttls or none", string(s.Security))
	}
	return errs
}

func (o OAuth2) check() (errs []error) {
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf("oauth2."+format, args...)) }
	u, err := url.Parse(o.TokenURL)
	if err != nil || u.Host == "" || u.Scheme != "https" && (u.Scheme != "http" || !hosts.Loopback(u.Hostname())) {
		wrong("token_url is %q, want an https URL", o.TokenURL)
	}
	if o.ClientID == "" {
		wrong("client_id is empty; set it to the id that the provider gave the application")
	}
	if !referred(o.RefreshToken) {
		wrong("refresh_token must be env:NAME or file:PATH")
	}
	if o.ClientSecret != "" && !referred(o.ClientSecret) {
		wrong("client_secret must not be in the file; write env:NAME or file:PATH")
	}
	return errs
}

func referred(secret string) bool {
	return strings.HasPrefix(secret, "env:") || strings.HasPrefix(secret, "file:")
}

func (s ServerConfig) withDefaults(ports map[Security]int) ServerConfig {
	s.Security = cmp.Or(s.Security, TLS)
	s.Port = cmp.Or(s.Port, ports[s.Security])
	return s
}

func (a AccountConfig) withDefaults() AccountConfig {
	a.User = cmp.Or(a.User, a.Address)
	a.Sent = cmp.Or(a.Sent, SentCopy)
	a.IMAP = a.IMAP.withDefaults(map[Security]int{TLS: 993, StartTLS: 143, None: 143})
	a.SMTP = a.SMTP.withDefaults(map[Security]int{TLS: 465, StartTLS: 587, None: 25})
	return a
}
