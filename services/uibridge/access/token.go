package access

import (
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"skandha.dev/services/internal/people"
	"skandha.dev/services/internal/secret"
	"skandha.dev/services/uibridge/contract"
)

// TokenFile is the file in the data directory that stores the owner's token.
const TokenFile = "ui-token"

// tokenPrefix begins every generated token, so that people and secret scanners recognize
// it.
const tokenPrefix = "skandha_ui_"

// token is an access token. The secret itself is not kept.
type token struct {
	contract.Principal
	sum   [sha256.Size]byte
	key   []byte // for signing the cookies of logins with it
	oidc  []byte // for signing the cookies of a person's logins with the provider
	short bool   // it might be guessed
}

func newToken(p contract.Principal, text string) (token, error) {
	if len(text) < minToken || len(text) > 512 ||
		strings.Trim(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~") != "" {
		return token{}, fmt.Errorf("want %d characters or more of A-Z a-z 0-9 - . _ ~", minToken)
	}
	key, err := hkdf.Key(sha256.New, []byte(text), nil, "skandha ui cookie v1 "+p.Name, sha256.Size)
	if err != nil {
		return token{}, fmt.Errorf("deriving a key: %w", err)
	}
	return token{Principal: p, sum: sha256.Sum256([]byte(text)), key: key, short: len(text) < unguessable}, nil
}

// readTokens reads the owner's token, generating it if there is none, and the others. Made
// is the owner's token if it was generated now.
func readTokens(c Config, dataDir string) (all []token, owner, made string, err error) {
	switch {
	case c.Owner != "":
	case dataDir != "":
		if owner, made, err = ownerOf(filepath.Join(dataDir, TokenFile)); err != nil {
			return nil, "", "", err
		}
	case len(c.Tokens) == 0 && !c.People.HaveTokens():
		return nil, "", "", errors.New(
			"tokens: no token is configured; set owner (SKANDHA_UI_TOKEN) to a token, or set a data directory " +
				"to keep a generated one in")
	}
	all, owner, err = c.configured(owner)
	return all, owner, made, err
}

// CheckSecrets reads the configured tokens. It reports all faults in them; each error names
// its field.
func (c Config) CheckSecrets() error {
	_, _, err := c.configured(unknownOwner)
	return err
}

// unknownOwner is the owner's token while it is not read from the data directory.
const unknownOwner = "unknown-owner-unknown-owner"

// configured reads the tokens, and returns that of the owner, too: the argument, if none is configured.
func (c Config) configured(found string) (all []token, owner string, err error) {
	owner = found
	var errs []error
	add := func(field, text string, err error, p contract.Principal) {
		var t token
		if err == nil {
			t, err = newToken(p, text)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", field, err))
			return
		}
		for _, other := range all {
			if len(other.key) > 0 && other.sum == t.sum {
				errs = append(errs, fmt.Errorf("%s: same token as %s; each needs its own", field, other.Name))
			}
		}
		all = append(all, t)
	}
	if c.Owner != "" {
		owner, err = secret.Read(c.Owner)
	}
	if owner != "" || err != nil {
		add("owner", owner, err, contract.Principal{Name: Owner, Writer: writerOf(Owner), Rights: contract.AllRights()})
	}
	for i, conf := range c.Tokens {
		if conf.Token == "" {
			continue // an error of Validate
		}
		p := contract.Principal{
			Name: conf.Name, Writer: writerOf(conf.Name), Rights: conf.Rights, Agents: conf.Agents, Expires: conf.Expires.Time,
		}
		if len(p.Rights) == 0 {
			p.Rights = []contract.Right{contract.See, contract.Talk, contract.Approve}
		}
		text, err := secret.Read(conf.Token)
		add(fmt.Sprintf("tokens[%d].token", i), text, err, p)
	}
	for _, name := range slices.Sorted(maps.Keys(c.People)) {
		conf, p := c.People[name], personOf(name, c.People[name])
		if conf.Token != "" {
			text, err := secret.Read(conf.Token)
			add("people."+name+".token", text, err, p)
		} else {
			all = append(all, token{Principal: p})
		}
		if conf.OIDC != (people.Login{}) && len(all) > 0 && all[len(all)-1].Name == name {
			all[len(all)-1].oidc, err = personKey(owner, c.OIDC, name, conf.OIDC)
			errs = append(errs, err)
		}
	}
	if owner == unknownOwner {
		owner = ""
	}
	return all, owner, errors.Join(errs...)
}

// ownerOf reads the file, or creates it.
func ownerOf(path string) (text, made string, err error) {
	b, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		made, err = makeToken(path)
		return made, made, err
	case err != nil:
		return "", "", fmt.Errorf("reading the owner's token: %w", err)
	}
	if text = strings.TrimSpace(string(b)); text == "" {
		return "", "", fmt.Errorf("the owner's token in %s is empty; remove the file to have a new one generated", path)
	}
	info, err := os.Stat(path)
	if err == nil && info.Mode().Perm()&0o077 != 0 {
		err = os.Chmod(path, 0o600)
	}
	if err != nil {
		return "", "", fmt.Errorf("restricting the owner's token to its owner: %w", err)
	}
	return text, "", nil
}

// makeToken writes a token of 256 random bits to the file, atomically.
func makeToken(path string) (string, error) {
	var b [32]byte
	_, _ = rand.Read(b[:]) // never fails, see crypto/rand
	text := tokenPrefix + base64.RawURLEncoding.EncodeToString(b[:])
	if err := writeWhole(path, text+"\n"); err != nil {
		return "", fmt.Errorf("storing the owner's token: %w", err)
	}
	return text, nil
}

// writeWhole replaces a file atomically, readable only by its owner.
func writeWhole(path, text string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*") // 0600
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }() // has no effect once it is renamed
	_, err = f.WriteString(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// tokenOf finds the token with this text, in constant time.
func (a *Access) tokenOf(text string) (t *token, err *contract.Error) {
	sum := sha256.Sum256([]byte(text))
	for i := range a.tokens {
		if len(a.tokens[i].key) > 0 && subtle.ConstantTimeCompare(sum[:], a.tokens[i].sum[:]) == 1 {
			t = &a.tokens[i]
		}
	}
	if t == nil {
		return nil, unauthenticated("unknown token")
	}
	return t, expired(t.Principal)
}

func (a *Access) named(name string) *token {
	for i := range a.tokens {
		if a.tokens[i].Name == name {
			return &a.tokens[i]
		}
	}
	return nil
}

// expired returns an error if the principal has expired.
func expired(p contract.Principal) *contract.Error {
	if !p.Expires.IsZero() && !time.Now().Before(p.Expires) {
		return unauthenticated("the token or login has expired; log in again")
	}
	return nil
}

func unauthenticated(message string) *contract.Error {
	return &contract.Error{Code: contract.CodeUnauthenticated, Message: message}
}
