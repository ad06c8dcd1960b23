package trust

import (
	"cmp"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nkeys"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/natsserver"
	"skandha.dev/services/internal/rights"
)

// keys are the seeds of a system, as they are kept.
type keys struct {
	Operator string            `json:"operator"`
	System   string            `json:"system"`  // the account of the server's own messages
	Account  string            `json:"account"` // the account of the system's services
	Services map[string]string `json:"services"`
	Retiring map[string]string `json:"retiring,omitempty"` // public keys of services before a rotation
	Tenant   bool              `json:"tenant,omitempty"`   // operator and system are those of another system
	Disk     int64             `json:"disk,omitempty"`     // what the account may store, in bytes; 0: no limit
}

// Authority signs the credentials of a system.
type Authority struct {
	name     string
	operator nkeys.KeyPair
	system   nkeys.KeyPair
	account  nkeys.KeyPair
	services map[string]nkeys.KeyPair
	kept     keys
}

// OperatorService is the service whose key makes the credentials of the system's operators.
const OperatorService = "operator"

// Open reads the keys in a file, or creates them. A service that is new gets a key.
func Open(file string) (*Authority, error) {
	k, err := read(file)
	if err != nil {
		return nil, fmt.Errorf("the keys of the bus: %w", err)
	}
	return open(file, k, false)
}

// open completes keys, and writes them to the file if they are new or changed.
func open(file string, k keys, changed bool) (*Authority, error) {
	var err error
	ensure := func(seed *string, create func() (nkeys.KeyPair, error)) nkeys.KeyPair {
		if *seed == "" {
			pair, createErr := create()
			err = errors.Join(err, createErr)
			if createErr == nil {
				*seed, changed = seedOf(pair), true
			}
		}
		pair, parseErr := nkeys.FromSeed([]byte(*seed))
		err = errors.Join(err, parseErr)
		return pair
	}
	a := &Authority{
		name: "skandha", services: map[string]nkeys.KeyPair{}, operator: ensure(&k.Operator, nkeys.CreateOperator),
		system: ensure(&k.System, nkeys.CreateAccount), account: ensure(&k.Account, nkeys.CreateAccount),
	}
	for _, name := range rights.Declared().ServiceNames() {
		seed := k.Services[name]
		a.services[name] = ensure(&seed, nkeys.CreateAccount)
		k.Services[name] = seed
	}
	if err != nil {
		return nil, fmt.Errorf("the keys of the bus: %w", damaged(file, err))
	}
	if changed {
		if err := write(file, k); err != nil {
			return nil, fmt.Errorf("the keys of the bus: %w", err)
		}
	}
	a.kept = k
	return a, nil
}

// Read is Open for keys that exist and are complete.
func Read(file string) (*Authority, error) {
	if _, err := os.Stat(file); err != nil {
		return nil, fmt.Errorf("the keys of the bus: %w; skandha secrets writes them", err)
	}
	return Open(file)
}

func read(file string) (k keys, err error) {
	k.Services = map[string]string{}
	b, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return k, nil
	}
	if err != nil {
		return k, err
	}
	if err := json.Unmarshal(b, &k); err != nil {
		return k, damaged(file, err)
	}
	if k.Operator == "" || k.System == "" || k.Account == "" { // only services may be new
		return k, damaged(file, errors.New("it lacks the key of the operator, the system or the account"))
	}
	if k.Services == nil {
		k.Services = map[string]string{}
	}
	return k, nil
}

// damaged is the error of a file that does not hold all keys.
func damaged(file string, err error) error {
	return fmt.Errorf("%s is damaged: %w; put it back from a copy, or start anew with an empty directory: without "+
		"these keys, nobody can connect or read what the bus has stored", file, err)
}

func write(file string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	tmp := file + ".new"
	f, err := os.OpenFile(tmp, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(b, '\n'))
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil { // an empty file would be the loss of the log
		return errors.Join(err, os.Remove(tmp))
	}
	return os.Rename(tmp, file)
}

func seedOf(k nkeys.KeyPair) string {
	seed, err := k.Seed()
	if err != nil {
		panic(err) // only of a key without a private part
	}
	return string(seed)
}

func publicOf(k nkeys.KeyPair) string {
	public, err := k.PublicKey()
	if err != nil {
		panic(err) // only of a wiped key
	}
	return public
}

// Server returns what the server is configured with.
func (a *Authority) Server() (*natsserver.Operator, error) {
	claims := jwt.NewOperatorClaims(publicOf(a.operator))
	claims.Name, claims.SystemAccount = a.name, publicOf(a.system)
	operator, err := claims.Encode(a.operator)
	if err != nil {
		return nil, fmt.Errorf("signing the operator: %w", err)
	}
	system, err := a.systemAccount()
	if err != nil {
		return nil, err
	}
	account, err := a.Account()
	if err != nil {
		return nil, err
	}
	return &natsserver.Operator{
		JWT: operator, SystemAccount: publicOf(a.system), Account: publicOf(a.account),
		Accounts: map[string]string{publicOf(a.system): system, publicOf(a.account): account},
	}, nil
}

func (a *Authority) systemAccount() (string, error) {
	claims := jwt.NewAccountClaims(publicOf(a.system))
	claims.Name = "system"
	out, err := claims.Encode(a.operator)
	if err != nil {
		return "", fmt.Errorf("signing the server's account: %w", err)
	}
	return out, nil
}

// Account returns the JWT of the system's account: the permissions of its services, and what it
// lets parties import.
func (a *Authority) Account() (string, error) {
	d := rights.Declared()
	claims := jwt.NewAccountClaims(publicOf(a.account))
	claims.Name = a.name
	claims.Limits.JetStreamLimits = jwt.JetStreamLimits{
		DiskStorage: cmp.Or(a.kept.Disk, jwt.NoLimit), MemoryStorage: jwt.NoLimit, Streams: jwt.NoLimit, Consumer: jwt.NoLimit,
	}
	for _, name := range d.ServiceNames() {
		p, err := d.Service(name)
		if err != nil {
			return "", err
		}
		for _, key := range []string{publicOf(a.services[name]), a.kept.Retiring[name]} {
			if key == "" {
				continue
			}
			scope := jwt.NewUserScope()
			scope.Key, scope.Role, scope.Description = key, name, d.Services[name].Summary
			scope.Template.Pub.Allow.Add(p.Publish...)
			scope.Template.Sub.Allow.Add(p.Subscribe...)
			scope.Template.BearerToken = name == OperatorService
			claims.SigningKeys.AddScopedSigner(scope)
		}
	}
	exported, err := d.Exported()
	if err != nil {
		return "", err
	}
	for _, s := range exported.Subscribe { // parties receive it
		claims.Exports.Add(&jwt.Export{Name: s, Subject: jwt.Subject(s), Type: jwt.Stream})
	}
	for _, s := range exported.Publish { // parties send it
		claims.Exports.Add(&jwt.Export{Name: s, Subject: jwt.Subject(s), Type: jwt.Service})
	}
	out, err := claims.Encode(a.operator)
	if err != nil {
		return "", fmt.Errorf("signing the system's account: %w", err)
	}
	return out, nil
}

// PartyID returns the id of a party's account.
func (a *Authority) PartyID(name subject.Identity, generation int) (string, error) {
	k, err := a.partyKey(string(name), generation)
	if err != nil {
		return "", err
	}
	return publicOf(k), nil
}

// IsService reports whether a JWT with the issuer and its account is of a service of the system.
func (a *Authority) IsService(issuer, account string) bool {
	if account != publicOf(a.account) {
		return false
	}
	for name, k := range a.services {
		if publicOf(k) == issuer || a.kept.Retiring[name] == issuer {
			return true
		}
	}
	return false
}

// partyKey is the key of a party's account, which follows from the operator's. The parties of tenants have
// separate keys, also those with the same name.
func (a *Authority) partyKey(name string, generation int) (nkeys.KeyPair, error) {
	seed, err := a.operator.Seed()
	if err != nil {
		return nil, err
	}
	info := fmt.Sprintf("skandha party %d %s", generation, name)
	if a.kept.Tenant {
		info = fmt.Sprintf("skandha tenant %s party %d %s", publicOf(a.account), generation, name)
	}
	raw, err := hkdf.Key(sha256.New, seed, nil, info, 32)
	if err != nil {
		return nil, err
	}
	return nkeys.FromRawSeed(nkeys.PrefixByteAccount, raw)
}
