package uibridge

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"

	"skandha.dev/services/internal/configfile"
	"skandha.dev/services/internal/hosts"
	"skandha.dev/services/uibridge/access"
)

// DefaultListen is the address that the bridge listens on unless [Config] sets another.
const DefaultListen = "127.0.0.1:7070"

// Config is the section ui of the configuration file; see the package's documentation.
type Config struct {
	Listen  string `yaml:"listen"`   // host:port; default 127.0.0.1:7070
	TLSCert string `yaml:"tls_cert"` // PEM file; with tls_key it serves HTTPS
	TLSKey  string `yaml:"tls_key"`  // PEM file

	access.Config `yaml:",inline"`
}

// ReadConfig reads and checks the bridge's section of a configuration file, and ignores
// those of other services. Without a file or a section it returns the defaults. The error
// lists all faults, with their lines.
func ReadConfig(path string) (Config, error) {
	return configfile.Read(path, ParseConfig, Config.Validate)
}

// ParseConfig decodes the section from the file's content.
func ParseConfig(file []byte) (c Config, err error) {
	_, err = configfile.Section(file, "ui", &c)
	_, badPeople := configfile.Section(file, "people", &c.People)
	return c, errors.Join(err, badPeople)
}

func (c Config) withDefaults() Config {
	c.Listen = cmp.Or(c.Listen, DefaultListen)
	return c
}

// Validate reports all faults; each error names its field.
func (c Config) Validate() error {
	c = c.withDefaults()
	var errs []error
	if err := hosts.CheckListen(c.Listen); err != nil {
		errs = append(errs, fmt.Errorf("listen: %w", err))
	}
	if (c.TLSCert == "") != (c.TLSKey == "") {
		errs = append(errs, errors.New("tls_cert and tls_key must be set together; set both or neither"))
	}
	return prefixed(errors.Join(append(errs, c.Config.Validate())...))
}

// CheckFile checks the section as [ReadConfig] does, and also reads the secrets and the
// certificate that it names, as on start.
func CheckFile(path string) error {
	_, err := configfile.Read(path, ParseConfig, func(c Config) error {
		return errors.Join(c.Validate(), prefixed(c.CheckSecrets()), c.CheckTLS())
	})
	return err
}

// CheckTLS loads the certificate and its key. It returns nil if none are configured.
func (c Config) CheckTLS() error {
	if c.TLSKey == "" {
		return nil // an error of Validate, if there is a certificate
	}
	_, err := c.certificate()
	return err
}

// certificate returns nil if the bridge serves HTTP.
func (c Config) certificate() (*tls.Certificate, error) {
	if c.TLSCert == "" {
		return nil, nil
	}
	cert, err := tls.LoadX509KeyPair(c.TLSCert, c.TLSKey)
	if err != nil {
		return nil, fmt.Errorf("ui.tls_cert: %w", err)
	}
	return &cert, nil
}

// prefixed prefixes each error with the section's name.
func prefixed(err error) error {
	if err == nil {
		return nil
	}
	var out []error
	for line := range strings.SplitSeq(err.Error(), "\n") {
		if !strings.HasPrefix(line, "people.") { // another section
			line = "ui." + line
		}
		out = append(out, errors.New(line))
	}
	return errors.Join(out...)
}

// url returns the URL by which browsers reach a bridge that listens on the address.
func (c Config) url(listens net.Addr) string {
	if c.URL != "" {
		return c.URL
	}
	scheme := "http://"
	if c.TLSCert != "" {
		scheme = "https://"
	}
	host, port, err := net.SplitHostPort(listens.String())
	if err != nil {
		return scheme + listens.String()
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
		if len(c.Hosts) > 0 {
			host = c.Hosts[0]
		}
	}
	return scheme + net.JoinHostPort(host, port)
}
