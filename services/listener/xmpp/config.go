package xmpp

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"regexp"
	"strings"
	"time"

	"skandha.dev/services/internal/bounds"
	"skandha.dev/services/internal/secret"
	"skandha.dev/services/listener/chat"
)

// Config of a gateway. Rooms are multi-user chats, such as "ops@conference.example.org"; accounts are
// bare JIDs.
type Config struct {
	chat.Config `yaml:",inline"`

	JID      string `yaml:"jid"`      // the gateway's account, such as agent@example.org
	Password string `yaml:"password"` // env:NAME or file:PATH
	Server   string `yaml:"server"`   // host:port; default: port 5222 of the account's domain
	Insecure bool   `yaml:"insecure"` // connect without TLS; only on this machine
	CA       string `yaml:"ca"`       // file of the certificate authorities to trust; default: the system's
	Nick     string `yaml:"nick" default:"skandha"`
	// how often the server must show that it is there
	Ping time.Duration `yaml:"ping" default:"60s" min:"1s" max:"10m"`
}

// bare matches a JID without a resource.
var bare = regexp.MustCompile(`^[^\x00-\x20"&'/:<>@\x7f]{1,255}@[^\x00-\x20"&'/<>@\x7f]{1,255}$`)

var (
	rooms    = chat.Form{Match: bare.MatchString, Want: "the address of a room, such as ops@conference.example.org"}
	accounts = chat.Form{Match: bare.MatchString, Want: "an account, such as ann@example.org"}
)

func (c Config) withDefaults() Config {
	c = bounds.Filled(c)
	c.Config = c.Config.WithDefaults()
	if _, domain, ok := strings.Cut(c.JID, "@"); ok && c.Server == "" {
		c.Server = net.JoinHostPort(domain, "5222")
	}
	return c
}

// Validate reports everything that is wrong; each error names its field.
func (c Config) Validate() error {
	c = c.withDefaults()
	errs := []error{c.Config.Validate(), c.CheckNames(rooms, accounts), bounds.Check("", c), chat.Named("password", c.Password)}
	if !bare.MatchString(c.JID) {
		errs = append(errs, fmt.Errorf("jid is %q, want an account, such as agent@example.org", c.JID))
	}
	host, _, err := net.SplitHostPort(c.Server)
	if err != nil || host == "" {
		errs = append(errs, fmt.Errorf("server is %q, want host:port, such as example.org:5222", c.Server))
	}
	if ip := net.ParseIP(host); c.Insecure && host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		errs = append(errs, errors.New("insecure: the password would be readable on the way; remove insecure"))
	}
	if c.Nick == "" || strings.ContainsAny(c.Nick, "/\r\n\x00") || len(c.Nick) > 100 {
		errs = append(errs, fmt.Errorf("nick is %q, want up to 100 bytes without a slash", c.Nick))
	}
	return errors.Join(errs...)
}

// CheckSecrets reads the secrets and reports everything that is wrong with them.
func (c Config) CheckSecrets() error {
	_, _, err := c.secrets()
	return err
}

// secrets returns the password, and how to use TLS; nil: not at all.
func (c Config) secrets() (password string, config *tls.Config, err error) {
	password, err = secret.Read(c.Password)
	if err != nil {
		err = fmt.Errorf("password: %w", err)
	}
	if c.Insecure {
		return password, nil, err
	}
	_, domain, _ := strings.Cut(c.JID, "@") // the certificate is the domain's (RFC 6120, section 13.7.2)
	config = &tls.Config{ServerName: domain, MinVersion: tls.VersionTLS12}
	if c.CA != "" {
		pem, readErr := os.ReadFile(c.CA)
		config.RootCAs = x509.NewCertPool()
		if readErr == nil && !config.RootCAs.AppendCertsFromPEM(pem) {
			readErr = fmt.Errorf("%s holds no certificate in PEM", c.CA)
		}
		if readErr != nil {
			err = errors.Join(err, fmt.Errorf("ca: %w", readErr))
		}
	}
	return password, config, err
}

// canonical returns a JID without its resource, in lower case.
func canonical(jid string) string {
	jid, _, _ = strings.Cut(jid, "/")
	return strings.ToLower(jid)
}

// resource returns what follows the bare JID: in a room, the nickname.
func resource(jid string) string {
	_, r, _ := strings.Cut(jid, "/")
	return r
}
