package mqttclient

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/bounds"
	"skandha.dev/services/internal/configfile"
	"skandha.dev/services/internal/secret"
)

// Config is the section mqtt: the brokers, by name.
type Config map[string]Broker

// Embedded is the name of the broker that `skandha up --mqtt` runs.
const Embedded = "embedded"

// Broker is how one is reached.
type Broker struct {
	URL      string `yaml:"url"`      // mqtt://HOST:PORT or mqtts://HOST:PORT; default ports 1883 and 8883
	User     string `yaml:"user"`     // user name
	Password string `yaml:"password"` // env:NAME or file:PATH
	CA       string `yaml:"ca"`       // file with the certificates that the broker's must be signed by; default those of the system
	Cert     string `yaml:"cert"`     // with key: file with the client's certificate
	Key      string `yaml:"key"`      // file with its key
	// Topics that the tool mqtt:publish may publish on, with the wildcards + and #; none: it may not
	Publish []string `yaml:"publish"`
	// largest payload that is received or published, in bytes; what is larger is dropped and counted
	MaxPayload int64 `yaml:"max_payload" default:"64 KiB" min:"1" max:"1 MiB"`
}

// ParseConfig decodes the section from the text of a configuration file; it may be missing.
func ParseConfig(file []byte) (c Config, err error) {
	_, err = configfile.Section(file, "mqtt", &c)
	return c, err
}

// ReadConfig reads and checks the section of a configuration file; an empty path means none.
func ReadConfig(path string) (Config, error) {
	return configfile.Read(path, ParseConfig, Config.inFile)
}

// CheckFile checks the section as ReadConfig does, and the secrets and files that it names.
func CheckFile(path string) error {
	_, err := configfile.Read(path, ParseConfig, func(c Config) error {
		errs := []error{c.inFile()}
		for _, name := range slices.Sorted(maps.Keys(c)) {
			if _, err := c[name].access(); err != nil {
				errs = append(errs, fmt.Errorf("mqtt.%s.%w", name, err))
			}
		}
		return errors.Join(errs...)
	})
	return err
}

// Validate reports everything that is wrong; each error names its field.
func (c Config) Validate() error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(c)) {
		if !subject.Valid(name) {
			errs = append(errs, fmt.Errorf("mqtt.%s: the name is not a valid id; use 1 to %d characters of A-Z a-z 0-9 _ -",
				name, subject.MaxIDLen))
		}
		if err := c[name].Validate(); err != nil {
			for line := range strings.SplitSeq(err.Error(), "\n") {
				errs = append(errs, errors.New("mqtt."+name+"."+line))
			}
		}
	}
	return errors.Join(errs...)
}

// inFile reports what is wrong with the section of a file, in which the embedded broker has no
// address.
func (c Config) inFile() error {
	own, ok := c[Embedded]
	if !ok {
		return c.Validate()
	}
	var err error
	if own.URL != "" || own.User != "" || own.Password != "" || own.CA != "" || own.Cert != "" {
		err = errors.New("mqtt.embedded: skandha up --mqtt sets address and credentials; remove url, user, password, ca and cert")
	}
	own = Broker{URL: "mqtt://127.0.0.1", Publish: own.Publish, MaxPayload: own.MaxPayload}
	c = maps.Clone(c)
	c[Embedded] = own
	return errors.Join(err, c.Validate())
}

// Validate reports everything that is wrong; each error names its field. The secret and the
// files are read by [Broker.Dial].
func (b Broker) Validate() error {
	b = bounds.Filled(b)
	errs := []error{bounds.Check("", b)}
	if _, err := b.address(); err != nil {
		errs = append(errs, err)
	}
	if b.Password != "" && b.User == "" {
		errs = append(errs, errors.New("password requires user; set it"))
	}
	if (b.Cert == "") != (b.Key == "") {
		errs = append(errs, errors.New("cert and key: set both, or neither"))
	}
	if u, err := url.Parse(b.URL); err == nil && u.Scheme == "mqtt" && (b.CA != "" || b.Cert != "") {
		errs = append(errs, errors.New("ca, cert and key require a url that begins with mqtts://"))
	}
	for i, t := range b.Publish {
		if err := CheckFilter(t); err != nil {
			errs = append(errs, fmt.Errorf("publish[%d]: %w", i, err))
		}
	}
	return errors.Join(errs...)
}

// address returns the URL with its port, in the words of the library.
func (b Broker) address() (string, error) {
	u, err := url.Parse(b.URL)
	if err != nil || u.Host == "" || u.User != nil || u.Path != "" && u.Path != "/" || u.RawQuery != "" {
		return "", errors.New("url: want mqtt://HOST:PORT or mqtts://HOST:PORT; put user and password into their fields")
	}
	scheme, port := "tcp", "1883"
	switch u.Scheme {
	case "mqtt":
	case "mqtts":
		scheme, port = "ssl", "8883"
	default:
		return "", fmt.Errorf("url: scheme is %q, want mqtt or mqtts", u.Scheme)
	}
	if u.Port() != "" {
		port = u.Port()
	}
	return scheme + "://" + net.JoinHostPort(u.Hostname(), port), nil
}

// access is what a connection needs of secrets and files.
type access struct {
	password string
	tls      *tls.Config
}

func (b Broker) access() (a access, err error) {
	if b.Password != "" {
		if a.password, err = secret.Read(b.Password); err != nil {
			return a, fmt.Errorf("password: %w", err)
		}
	}
	if !strings.HasPrefix(b.URL, "mqtts:") {
		return a, nil
	}
	a.tls = &tls.Config{MinVersion: tls.VersionTLS12}
	if b.CA != "" {
		pem, err := os.ReadFile(b.CA)
		if err != nil {
			return a, fmt.Errorf("ca: %w", err)
		}
		a.tls.RootCAs = x509.NewCertPool()
		if !a.tls.RootCAs.AppendCertsFromPEM(pem) {
			return a, fmt.Errorf("ca: %s has no certificate in PEM", b.CA)
		}
	}
	if b.Cert != "" {
		pair, err := tls.LoadX509KeyPair(b.Cert, b.Key)
		if err != nil {
			return a, fmt.Errorf("cert or key: %w", err)
		}
		a.tls.Certificates = []tls.Certificate{pair}
	}
	return a, nil
}
