package bus

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"skandha.dev/pkg/subject"
)

// Credentials show who a process is, to a server with rights. Each process of a service makes its
// own, so that JWT and Sign are called at each connect.
type Credentials struct {
	Identity subject.Identity
	// Process is the key of this process, which is its instance id. Empty: the credentials do not
	// name a process.
	Process subject.Instance
	JWT     func() (string, error)
	Sign    func(nonce []byte) ([]byte, error) // nil: the JWT alone is enough (a bearer token)
	// Diagnoses says that they allow asking the server why it does not store ([WhyNotStored]). Other
	// processes of a system with rights learn it from core.
	Diagnoses bool
}

func (c *Credentials) sign(nonce []byte) ([]byte, error) {
	if c.Sign == nil {
		return nil, nil
	}
	return c.Sign(nonce)
}

// claims are what this package reads of a JWT. It verifies nothing: the server does.
type claims struct {
	Name    string `json:"name"`
	Subject string `json:"sub"`
	Issuer  string `json:"iss"`
	// in seconds since 1970; 0: not set
	IssuedAt  int64 `json:"iat"`
	NotBefore int64 `json:"nbf"`
	Expires   int64 `json:"exp"`
	NATS      struct {
		// IssuerAccount is set by the scoped keys of services alone.
		IssuerAccount string   `json:"issuer_account"`
		Tags          []string `json:"tags"`
	} `json:"nats"`
}

// PartyTag is the tag in the JWT of a plugin, listener or program that is not part of the system.
const PartyTag = "party"

// parseJWT reads a JWT; ok is false for any other text, such as a token.
func parseJWT(token string) (c claims, ok bool) {
	parts := strings.Split(strings.TrimSpace(token), ".")
	if len(parts) != 3 || !strings.HasPrefix(parts[0], "eyJ") {
		return c, false
	}
	body, err := base64.RawURLEncoding.DecodeString(parts[1])
	return c, err == nil && json.Unmarshal(body, &c) == nil && c.Subject != ""
}

// who returns the identity and the process that a JWT names.
func (c claims) who() (subject.Identity, subject.Instance) {
	id, err := subject.Parse[subject.Identity](c.Name)
	if err != nil {
		id = ""
	}
	if c.NATS.IssuerAccount == "" {
		return id, ""
	}
	return id, subject.Instance(c.Subject)
}

// bearer returns the option for a token: a bearer JWT, or a plain token. It is looked at when it is
// shown: a system that ran without rights may have them when it runs again.
func bearer(token func() string) nats.Option {
	return func(o *nats.Options) error {
		o.TokenHandler = func() string {
			if t := token(); !isJWT(t) {
				return t
			}
			return ""
		}
		o.UserJWT = func() (string, error) {
			if t := token(); isJWT(t) {
				return t, nil
			}
			return "", nil
		}
		o.SignatureCB = func([]byte) ([]byte, error) { return nil, nil } // a bearer token needs none
		return nil
	}
}

// account is the account that the JWT's holder is in.
func (c claims) account() string { return cmp.Or(c.NATS.IssuerAccount, c.Issuer) }

func isJWT(token string) bool {
	_, ok := parseJWT(token)
	return ok
}

// BearerOf returns the JWT in a file of credentials. It is a token if the server takes it without a signature.
func BearerOf(file string) (string, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	token, err := nkeys.ParseDecoratedJWT(b)
	if err != nil {
		return "", fmt.Errorf("%s: %w", file, err)
	}
	return token, nil
}

// identify sets who this process is, as its credentials say.
func (c *Config) identify() error {
	shown, ok := parseJWT(c.Token)
	switch {
	case c.Credentials != nil:
		c.Identity = cmp.Or(c.Identity, c.Credentials.Identity)
		c.Instance = cmp.Or(c.Credentials.Process, c.Instance)
		token, err := c.Credentials.JWT()
		if err != nil {
			return fmt.Errorf("bus.credentials: %w", err)
		}
		shown, _ = parseJWT(token)
		c.account = shown.account()
		return nil
	case c.Token != "" && !ok:
		return nil // it is shown instead of credentials
	case c.CredsFile != "":
		token, err := BearerOf(c.CredsFile)
		if err != nil {
			return fmt.Errorf("bus.creds_file: %w", err)
		}
		if shown, ok = parseJWT(token); !ok {
			return fmt.Errorf("bus.creds_file: %s contains no JWT", c.CredsFile)
		}
	case !ok:
		return nil
	}
	id, process := shown.who()
	c.party = slices.Contains(shown.NATS.Tags, PartyTag)
	if c.Identity = cmp.Or(c.Identity, id); c.party && c.Identity != id {
		return fmt.Errorf("bus.identity is %q, but the credentials are for %q; leave it out, or get other credentials: "+
			"skandha plugins invite %s", c.Identity, id, c.Identity)
	}
	c.account = shown.account()
	c.Instance = cmp.Or(process, c.Instance)
	return nil
}
