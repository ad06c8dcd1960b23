package mail

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/emersion/go-sasl"

	"skandha.dev/services/internal/secret"
)

const dialTimeout = 10 * time.Second

// Accounts are the accounts of a configuration.
type Accounts struct {
	accounts map[string]*Account
}

// Account is one e-mail account, with its secrets.
type Account struct {
	AccountConfig
	ID string // its key in the configuration

	password string
	tokens   *tokens
	roots    *x509.CertPool // nil: those of the system
}

// Open reads the secrets and certificates of the accounts; an error names the field.
func Open(c Config) (*Accounts, error) {
	out := &Accounts{accounts: map[string]*Account{}}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(c.Accounts)) {
		a, err := open(name, c.Accounts[name].withDefaults())
		if err != nil {
			errs = append(errs, fmt.Errorf("email.accounts.%s.%w", name, err))
			continue
		}
		out.accounts[name] = a
	}
	return out, errors.Join(errs...)
}

func open(name string, c AccountConfig) (a *Account, err error) {
	a = &Account{AccountConfig: c, ID: name}
	if c.Password != "" {
		if a.password, err = secret.Read(c.Password); err != nil {
			return nil, fmt.Errorf("password: %w", err)
		}
	}
	if c.OAuth2 != nil {
		if a.tokens, err = openTokens(*c.OAuth2); err != nil {
			return nil, fmt.Errorf("oauth2.%w", err)
		}
	}
	if c.CAFile != "" {
		pem, err := os.ReadFile(c.CAFile)
		if err != nil {
			return nil, fmt.Errorf("ca_file: %w", err)
		}
		a.roots = x509.NewCertPool()
		if !a.roots.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("ca_file %s has no certificate; it must be in PEM format", c.CAFile)
		}
	}
	return a, nil
}

// Names lists the accounts.
func (a *Accounts) Names() []string { return slices.Sorted(maps.Keys(a.accounts)) }

// Get returns the account with the name. If there is only one, the name may be empty.
func (a *Accounts) Get(name string) (*Account, error) {
	if name == "" && len(a.accounts) == 1 {
		for _, only := range a.accounts {
			return only, nil
		}
	}
	if found := a.accounts[name]; found != nil {
		return found, nil
	}
	if name == "" {
		return nil, fmt.Errorf("account is empty; want one of %s", strings.Join(a.Names(), ", "))
	}
	return nil, fmt.Errorf("account %q does not exist; want one of %s", name, strings.Join(a.Names(), ", "))
}

// Address returns where the server listens.
func (s ServerConfig) Address() string { return net.JoinHostPort(s.Host, strconv.Itoa(s.Port)) }

// TLSConfig returns the settings for connections to a server of the account.
func (a *Account) TLSConfig(s ServerConfig) *tls.Config {
	return &tls.Config{ServerName: s.Host, RootCAs: a.roots, MinVersion: tls.VersionTLS12}
}

// maxHandshake is how much a server may send before [Conn.Allow] says more, in bytes.
const maxHandshake = 1 << 20

// Dial connects to a server of the account, with TLS if its security is [TLS]. The connection
// is closed when ctx ends.
func (a *Account) Dial(ctx context.Context, s ServerConfig) (*Conn, error) {
	conn, err := a.dial(ctx, s)
	if err != nil {
		return nil, err
	}
	c := &Conn{Conn: conn}
	c.Allow(maxHandshake)
	return c, nil
}

func (a *Account) dial(ctx context.Context, s ServerConfig) (net.Conn, error) {
	d := &net.Dialer{Timeout: dialTimeout}
	conn, err := d.DialContext(ctx, "tcp", s.Address())
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", s.Address(), err)
	}
	context.AfterFunc(ctx, func() { _ = conn.Close() })
	if s.Security != TLS {
		return conn, nil
	}
	secured := tls.Client(conn, a.TLSConfig(s))
	hello, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	if err := secured.HandshakeContext(hello); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("connecting to %s by TLS: %w", s.Address(), err)
	}
	return secured, nil
}

// Auth returns the account's credentials for one of the mechanisms that a server offers.
func (a *Account) Auth(ctx context.Context, offered []string) (sasl.Client, error) {
	has := func(mechanism string) bool {
		return slices.ContainsFunc(offered, func(o string) bool { return strings.EqualFold(o, mechanism) })
	}
	if a.tokens == nil {
		switch {
		case has(sasl.Plain):
			return sasl.NewPlainClient("", a.User, a.password), nil
		case has(sasl.Login):
			return sasl.NewLoginClient(a.User, a.password), nil
		}
		return nil, fmt.Errorf("the server accepts no password; it offers %q, want PLAIN or LOGIN", offered)
	}
	if !has(sasl.OAuthBearer) && !has(xoauth2) {
		return nil, fmt.Errorf("the server accepts no OAuth2 token; it offers %q, want OAUTHBEARER or XOAUTH2", offered)
	}
	token, err := a.tokens.get(ctx)
	if err != nil {
		return nil, err
	}
	if has(sasl.OAuthBearer) {
		return sasl.NewOAuthBearerClient(&sasl.OAuthBearerOptions{Username: a.User, Token: token}), nil
	}
	return &xoauth2Client{user: a.User, token: token}, nil
}

// Rejected forgets the access token, which a server did not accept.
func (a *Account) Rejected() {
	if a.tokens != nil {
		a.tokens.forget()
	}
}
