package trust

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nkeys"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/rights"
)

// Key lets the processes of one service make their credentials.
type Key struct {
	Service string `json:"service"`
	Account string `json:"account"` // public key of the system's account
	Seed    string `json:"seed"`
}

// Key returns the key of a service, or an error if there is no such service.
func (a *Authority) Key(service string) (Key, error) {
	pair, ok := a.services[service]
	if !ok {
		return Key{}, fmt.Errorf("no service %q; want one of %s", service,
			strings.Join(rights.Declared().ServiceNames(), ", "))
	}
	return Key{service, publicOf(a.account), seedOf(pair)}, nil
}

// ReadKey reads a key's file.
func ReadKey(file string) (k Key, err error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return k, fmt.Errorf("the key of the service: %w", err)
	}
	if err := json.Unmarshal(b, &k); err != nil {
		return k, fmt.Errorf("the key of the service: %s: %w", file, err)
	}
	if k.Service == "" || k.Account == "" || k.Seed == "" {
		return k, fmt.Errorf("the key of the service: %s: service, account or seed is missing; "+
			"skandha secrets writes such a file", file)
	}
	return k, nil
}

// Write writes the key's file, which only the owner may read.
func (k Key) Write(file string) error { return write(file, k) }

// CredentialsOf makes the credentials of one process of a service with the key in a file. Each connection reads
// the file again, so that the process need not restart when the key was replaced.
func CredentialsOf(service, file string) (*bus.Credentials, error) {
	k, err := ReadKey(file)
	if err != nil {
		return nil, err
	}
	if k.Service != service {
		return nil, fmt.Errorf("%s is the key of %s, this is %s; give each service its own key", file, k.Service, service)
	}
	return k.credentials(func() Key {
		now, err := ReadKey(file)
		if err != nil || now.Service != service || now.Account != k.Account {
			return k
		}
		return now
	})
}

// Credentials makes the credentials of one process.
func (k Key) Credentials() (*bus.Credentials, error) { return k.credentials(func() Key { return k }) }

// credentials makes those of one process, which current's key signs at each connection.
func (k Key) credentials(current func() Key) (*bus.Credentials, error) {
	own, signed, err := k.user()
	if err != nil {
		return nil, err
	}
	may, err := rights.Declared().Service(k.Service)
	if err != nil {
		return nil, err
	}
	c := credentials(subject.Identity(k.Service), own, signed)
	c.JWT = func() (string, error) { return current().sign(own) }
	c.Diagnoses = slices.Contains(may.Publish, bus.WhyNotStored)
	return c, nil
}

// creds makes credentials as the file that clients of NATS read.
func (k Key) creds() ([]byte, error) {
	own, signed, err := k.user()
	if err != nil {
		return nil, err
	}
	return jwt.FormatUserConfig(signed, []byte(seedOf(own)))
}

// user makes the key of a process, and a JWT for it.
func (k Key) user() (own nkeys.KeyPair, signed string, err error) {
	if own, err = nkeys.CreateUser(); err == nil {
		signed, err = k.sign(own)
	}
	return own, signed, err
}

// sign makes a JWT for the key of a process.
func (k Key) sign(own nkeys.KeyPair) (string, error) {
	signer, err := nkeys.FromSeed([]byte(k.Seed))
	if err != nil {
		return "", fmt.Errorf("the key of %s: %w", k.Service, err)
	}
	return signUser(own, subject.Identity(k.Service), signer, func(c *jwt.UserClaims) {
		c.IssuerAccount = k.Account
		c.UserPermissionLimits = jwt.UserPermissionLimits{} // those of the key
	})
}

// issued reports whether a file has credentials that this key has signed.
func (k Key) issued(creds []byte) bool {
	token, err := nkeys.ParseDecoratedJWT(creds)
	if err != nil {
		return false
	}
	claims, err := jwt.DecodeUserClaims(token)
	signer, keyErr := nkeys.FromSeed([]byte(k.Seed))
	return err == nil && keyErr == nil && claims.Issuer == publicOf(signer) && claims.IssuerAccount == k.Account
}

// newUser makes a new key, and a JWT for it, which signer signs.
func newUser(
	id subject.Identity, signer nkeys.KeyPair, change func(*jwt.UserClaims),
) (own nkeys.KeyPair, signed string, err error) {
	if own, err = nkeys.CreateUser(); err != nil {
		return nil, "", err
	}
	signed, err = signUser(own, id, signer, change)
	return own, signed, err
}

func signUser(
	own nkeys.KeyPair, id subject.Identity, signer nkeys.KeyPair, change func(*jwt.UserClaims),
) (signed string, err error) {
	claims := jwt.NewUserClaims(publicOf(own))
	claims.Name = string(id)
	change(claims)
	if signed, err = claims.Encode(signer); err != nil {
		return "", fmt.Errorf("signing the credentials of %s: %w", id, err)
	}
	return signed, nil
}

// credentials are those of one process; nil without a key.
func credentials(id subject.Identity, own nkeys.KeyPair, signed string) *bus.Credentials {
	if own == nil {
		return nil
	}
	return &bus.Credentials{
		Identity: id, Process: subject.Instance(publicOf(own)),
		JWT: func() (string, error) { return signed, nil }, Sign: own.Sign,
	}
}

// Whole makes credentials that may do everything in the system's account, for a program that runs
// the system in its own process.
func (a *Authority) Whole(id subject.Identity) (*bus.Credentials, error) {
	own, signed, err := newUser(id, a.account, func(*jwt.UserClaims) {})
	if err != nil {
		return nil, err
	}
	c := credentials(id, own, signed)
	c.Diagnoses = true
	return c, nil
}

// Keeper makes credentials for the server's own account: to tell it of accounts, and to learn who
// connects and which clients are refused.
func (a *Authority) Keeper() (*bus.Credentials, error) {
	own, signed, err := newUser("keeper", a.system, func(c *jwt.UserClaims) {
		c.Pub.Allow.Add("$SYS.REQ.CLAIMS.UPDATE", "$SYS.REQ.CLAIMS.DELETE", "$SYS.REQ.SERVER.PING.CONNZ")
		c.Sub.Allow.Add("$SYS.ACCOUNT.*.CONNECT", "$SYS.ACCOUNT.*.DISCONNECT", "$SYS.SERVER.*.CLIENT.AUTH.ERR", "_INBOX.>")
	})
	return credentials("keeper", own, signed), err
}

// OperatorToken makes a bearer token for the people who run the system.
func (a *Authority) OperatorToken() (string, error) {
	k, err := a.Key(OperatorService)
	if err != nil {
		return "", err
	}
	c, err := k.Credentials()
	if err != nil {
		return "", err
	}
	return c.JWT()
}

// Admission is what a party needs to connect.
type Admission struct {
	Account    string // its id
	AccountJWT string // for the server
	User       string // public key of these credentials
	JWT        string
	Seed       string // empty for a bearer token
}

// Creds returns the credentials as the file that clients of NATS read.
func (a Admission) Creds() ([]byte, error) {
	if a.Seed == "" {
		return nil, errors.New("a bearer token has no private key")
	}
	return jwt.FormatUserConfig(a.JWT, []byte(a.Seed))
}

// Limits of a party, so that it cannot exhaust the server.
const (
	partyConnections   = 128
	partySubscriptions = 4096
	// of the messages of one that only sends inputs and looks on, in bytes: core takes no larger inputs,
	// and refuses them when they are stored
	listenerPayload = 1 << 20
)

// Admit makes new credentials for the charter's party. Those of the same generation stay valid. A
// bearer token needs no signature, for languages without Ed25519.
func (a *Authority) Admit(c rights.Charter, generation int, bearer bool) (Admission, error) {
	account, err := a.partyKey(string(c.Name), generation)
	if err != nil {
		return Admission{}, fmt.Errorf("admitting %s: %w", c.Name, err)
	}
	own, err := nkeys.CreateUser()
	if err != nil {
		return Admission{}, err
	}
	claims := jwt.NewUserClaims(publicOf(own))
	claims.Name, claims.BearerToken = string(c.Name), bearer
	claims.Tags.Add(bus.PartyTag, bus.SystemTag+publicOf(a.account))
	if !c.Expires.IsZero() {
		claims.Expires = c.Expires.Unix()
	}
	out := Admission{Account: publicOf(account), User: publicOf(own)}
	if out.JWT, err = claims.Encode(account); err != nil {
		return Admission{}, fmt.Errorf("signing the credentials of %s: %w", c.Name, err)
	}
	if !bearer {
		out.Seed = seedOf(own)
	}
	out.AccountJWT, err = a.PartyAccount(c, generation, nil)
	return out, err
}

// forever is later than the time at which any machine makes credentials. The server compares a revocation with that
// time, and the clock of the machine could have been ahead.
var forever = time.Date(9999, time.January, 1, 0, 0, 0, 0, time.UTC)

// PartyAccount returns the JWT of a party's account, in which the credentials of the users are
// revoked.
func (a *Authority) PartyAccount(c rights.Charter, generation int, revoked []string) (string, error) {
	return a.partyAccount(c, generation, revoked, rights.Declared().Party)
}

// MutedAccount is PartyAccount for one that can send no inputs for a while.
func (a *Authority) MutedAccount(c rights.Charter, generation int, revoked []string) (string, error) {
	return a.partyAccount(c, generation, revoked, rights.Declared().Muted)
}

func (a *Authority) partyAccount(
	c rights.Charter, generation int, revoked []string, rightsOf func(rights.Charter) (rights.Permissions, error),
) (string, error) {
	account, err := a.partyKey(string(c.Name), generation)
	if err != nil {
		return "", err
	}
	p, err := rightsOf(c)
	if err != nil {
		return "", err
	}
	claims := jwt.NewAccountClaims(publicOf(account))
	claims.Name = string(c.Name)
	claims.Limits.Conn, claims.Limits.Subs = partyConnections, partySubscriptions
	if !c.Answers() {
		claims.Limits.Payload = listenerPayload
	}
	from := publicOf(a.account)
	for _, s := range p.Subscribe {
		claims.Imports.Add(&jwt.Import{Name: s, Subject: jwt.Subject(s), Account: from, Type: jwt.Stream})
	}
	for _, s := range p.Publish {
		claims.Imports.Add(&jwt.Import{Name: s, Subject: jwt.Subject(s), Account: from, Type: jwt.Service})
	}
	for _, user := range revoked {
		claims.RevokeAt(user, forever)
	}
	out, err := claims.Encode(a.operator)
	if err != nil {
		return "", fmt.Errorf("signing the account of %s: %w", c.Name, err)
	}
	return out, nil
}

// Dismissal returns the request with which the server deletes the party's account, and closes its
// connections.
func (a *Authority) Dismissal(name subject.Identity, generation int) (string, error) {
	account, err := a.partyKey(string(name), generation)
	if err != nil {
		return "", err
	}
	claims := jwt.NewGenericClaims(publicOf(a.operator))
	claims.Data["accounts"] = []string{publicOf(account)}
	claims.Expires = time.Now().Add(time.Minute).Unix()
	return claims.Encode(a.operator)
}
