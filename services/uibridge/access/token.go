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
	"os"
	"path/filepath"
	"strings"
	"time"

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
	key   []byte // for signing its cookies
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
func readTokens(c Config, dataDir string) (all []token, made string, err error) {
	owner := ""
	switch {
	case c.Owner != "":
	case dataDir != "":
		if owner, made, err = ownerOf(filepath.Join(dataDir, TokenFile)); err != nil {
			return nil, "", err
		}
	case len(c.Tokens) == 0:
		return nil, "", errors.New(
			"tokens: no token is configured; set owner (SKANDHA_UI_TOKEN) to a token, or set a data directory " +
				"to keep a generated one in")
	}
	if all, err = c.configured(owner); err != nil {
		return nil, "", err
	}
	return all, made, nil
}

// CheckSecrets reads the configured tokens. It reports all faults in them; each error names
// its field.
func (c Config) CheckSecrets() error {
	_, err := c.configured("")
	return err
}

// configured reads the tokens. The argument is the owner's token if none is configured.
func (c Config) configured(owner string) (all []token, err error) {
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
			if other.sum == t.sum {
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
	return all, errors.Join(errs...)
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
		if subtle.ConstantTimeCompare(sum[:], a.tokens[i].sum[:]) == 1 {
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
