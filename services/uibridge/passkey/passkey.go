package passkey

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-webauthn/webauthn/protocol"
	"github.com/go-webauthn/webauthn/webauthn"

	"skandha.dev/services/uibridge/contract"
)

// Times of a ceremony.
const (
	life  = 2 * time.Minute  // from the challenge to the answer
	fresh = 10 * time.Minute // after a login, in which the first passkey may be registered
)

// Keys are the passkeys of all people. It is safe for concurrent use.
type Keys struct {
	path string
	sign []byte
	now  func() time.Time
	mu   sync.Mutex
}

// New returns the passkeys of a data directory; sign signs what browsers bring back. Without one of
// them there are none, and every method says so.
func New(dataDir string, sign []byte) *Keys {
	k := &Keys{sign: sign, now: time.Now}
	if dataDir != "" {
		k.path = filepath.Join(dataDir, File)
	}
	return k
}

// Subject is what an assertion is for: an approval or, if it is empty, a further passkey.
type Subject struct {
	Agent          string `json:"agent,omitempty"`
	Session        string `json:"session,omitempty"`
	ConfirmationID string `json:"confirmationId,omitempty"`
	Hash           string `json:"hash,omitempty"`
}

// bond is what a challenge is the hash of.
type bond struct {
	Subject

	Create  bool   `json:"create,omitempty"` // a registration
	Person  string `json:"person"`
	Login   string `json:"login"`
	Origin  string `json:"origin"`
	Nonce   string `json:"nonce"`
	Expires int64  `json:"expires"` // Unix seconds
}

// Offer is what the browser needs for a ceremony.
type Offer struct {
	Options any    `json:"options"` // for navigator.credentials, in the JSON form of WebAuthn
	State   string `json:"state"`   // to be brought back
}

// person implements webauthn.User.
type person struct {
	name string
	keys []webauthn.Credential
}

func (p person) WebAuthnID() []byte {
	sum := sha256.Sum256([]byte("skandha person " + p.name))
	return sum[:]
}
func (p person) WebAuthnName() string                       { return p.name }
func (p person) WebAuthnDisplayName() string                { return p.name }
func (p person) WebAuthnCredentials() []webauthn.Credential { return p.keys }

// Count returns how many passkeys a person has for the page's host.
func (k *Keys) Count(p contract.Principal, origin string) (int, error) {
	if err := k.usable(p); err != nil {
		return 0, err
	}
	_, who, err := k.known(p, origin)
	return len(who.keys), err
}

// usable returns why the principal cannot use passkeys.
func (k *Keys) usable(p contract.Principal) error {
	switch {
	case k.path == "" || len(k.sign) == 0:
		return &contract.Error{
			Code: contract.CodeUnavailable, Message: "this bridge keeps no passkeys; give it a data directory and an owner's token",
		}
	case p.Login == "":
		return &contract.Error{Code: contract.CodeForbidden, Message: "passkeys are used on the page; log in there"}
	}
	return nil
}

// known returns the ceremony of a page's origin, and the person with the passkeys for its host.
func (k *Keys) known(p contract.Principal, origin string) (*webauthn.WebAuthn, person, error) {
	who := person{name: p.Name}
	u, err := url.Parse(origin)
	if err != nil {
		return nil, who, err
	}
	w, err := webauthn.New(&webauthn.Config{
		RPID: u.Hostname(), RPDisplayName: "Skandha", RPOrigins: []string{origin},
		AuthenticatorSelection: protocol.AuthenticatorSelection{UserVerification: protocol.VerificationRequired},
	})
	if err != nil {
		return nil, who, &contract.Error{
			Code: contract.CodeInvalid, Message: "passkeys need the page at a host name, such as localhost, and https elsewhere",
		}
	}
	all, err := k.read()
	if err != nil {
		return nil, who, err
	}
	for _, r := range all[p.Name] {
		if r.Host == u.Hostname() {
			who.keys = append(who.keys, r.Credential)
		}
	}
	return w, who, nil
}

func (k *Keys) bind(p contract.Principal, origin string, s Subject, create bool) (state string, challenge []byte) {
	b, err := json.Marshal(bond{s, create, p.Name, p.Login, origin, rand.Text(), k.now().Add(life).Unix()})
	if err != nil {
		panic(err) // plain fields
	}
	sum := sha256.Sum256(b)
	return base64.RawURLEncoding.EncodeToString(b) + "." + base64.RawURLEncoding.EncodeToString(k.mac(b)), sum[:]
}

func (k *Keys) mac(b []byte) []byte {
	m := hmac.New(sha256.New, k.sign)
	m.Write([]byte("passkey."))
	m.Write(b)
	return m.Sum(nil)
}

// bound returns what a state was made for, and its challenge; an error unless it is this principal's,
// for this subject, and in time.
func (k *Keys) bound(p contract.Principal, state string, s Subject, create bool) (b bond, challenge []byte, err error) {
	text, signature, _ := strings.Cut(state, ".")
	body, err1 := base64.RawURLEncoding.Strict().DecodeString(text)
	sum, err2 := base64.RawURLEncoding.Strict().DecodeString(signature)
	switch {
	case err1 != nil || err2 != nil || !hmac.Equal(sum, k.mac(body)) || json.Unmarshal(body, &b) != nil:
		return b, nil, refused("its challenge is not one of this bridge")
	case b.Person != p.Name || b.Login != p.Login:
		return b, nil, refused("its challenge was for another login")
	case b.Subject != s || b.Create != create:
		return b, nil, refused("its challenge was for something else")
	case !k.now().Before(time.Unix(b.Expires, 0)):
		return b, nil, refused("it came too late")
	}
	hash := sha256.Sum256(body)
	return b, hash[:], nil
}

func refused(why string) error {
	return &contract.Error{Code: contract.CodeForbidden, Field: "passkey", Message: "the passkey was not accepted: " + why + "; try again"}
}

// Challenge begins an assertion for the subject.
func (k *Keys) Challenge(p contract.Principal, origin string, s Subject) (o Offer, err error) {
	if err := k.usable(p); err != nil {
		return o, err
	}
	w, who, err := k.known(p, origin)
	switch {
	case err != nil:
		return o, err
	case len(who.keys) == 0:
		return o, &contract.Error{Code: contract.CodeConflict, Message: p.Name + " has no passkey for this page; register one first"}
	}
	state, challenge := k.bind(p, origin, s, false)
	options, _, err := w.BeginLogin(who, webauthn.WithChallenge(challenge), webauthn.WithUserVerification(protocol.VerificationRequired))
	if err != nil {
		return o, fmt.Errorf("beginning an assertion: %w", err)
	}
	return Offer{options.Response, state}, nil
}

// Verify returns nil if the proof is an assertion of the principal for exactly this subject.
func (k *Keys) Verify(p contract.Principal, s Subject, proof *contract.Proof) error {
	if err := k.usable(p); err != nil {
		return err
	}
	if proof == nil {
		return refused("it is missing")
	}
	b, challenge, err := k.bound(p, proof.State, s, false)
	if err != nil {
		return err
	}
	w, who, err := k.known(p, b.Origin)
	if err != nil {
		return err
	}
	parsed, err := protocol.ParseCredentialRequestResponseBytes(proof.Credential)
	if err != nil {
		return refused("it cannot be read")
	}
	used, err := w.ValidateLogin(who, webauthn.SessionData{
		Challenge: base64.RawURLEncoding.EncodeToString(challenge), RelyingPartyID: w.Config.RPID, UserID: who.WebAuthnID(),
		UserVerification: protocol.VerificationRequired,
	}, parsed)
	switch {
	case err != nil:
		return refused("its signature does not match")
	case used.Authenticator.CloneWarning:
		return refused("its counter went backwards, so it may be a copy")
	}
	return k.change(func(all map[string][]registered) error { // the counter
		for i := range all[p.Name] {
			if bytes.Equal(all[p.Name][i].Credential.ID, used.ID) {
				all[p.Name][i].Credential = *used
			}
		}
		return nil
	})
}

// New begins the registration of a passkey. If the principal has one, proof is an assertion of it.
func (k *Keys) New(p contract.Principal, origin string, proof *contract.Proof) (o Offer, err error) {
	if err := k.usable(p); err != nil {
		return o, err
	}
	w, who, err := k.known(p, origin)
	if err != nil {
		return o, err
	}
	if err := k.mayRegister(p, proof); err != nil {
		return o, err
	}
	state, challenge := k.bind(p, origin, Subject{}, true)
	options, _, err := w.BeginRegistration(who, func(c *protocol.PublicKeyCredentialCreationOptions) error {
		c.Challenge = challenge
		for i := range who.keys {
			c.CredentialExcludeList = append(c.CredentialExcludeList, who.keys[i].Descriptor())
		}
		return nil
	})
	if err != nil {
		return o, fmt.Errorf("beginning a registration: %w", err)
	}
	return Offer{options.Response, state}, nil
}

// mayRegister counts the passkeys for all hosts: one for another host is one, too.
func (k *Keys) mayRegister(p contract.Principal, proof *contract.Proof) error {
	all, err := k.read()
	switch {
	case err != nil:
		return err
	case len(all[p.Name]) >= maxKeys:
		return &contract.Error{Code: contract.CodeConflict, Message: fmt.Sprintf("%s has %d passkeys, the most there may be", p.Name, maxKeys)}
	case len(all[p.Name]) > 0:
		return k.Verify(p, Subject{}, proof)
	case k.now().Sub(p.Began) > fresh:
		return &contract.Error{
			Code: contract.CodeConflict, Message: "the first passkey is registered within ten minutes after logging in; log out, and log in again",
		}
	}
	return nil
}

// Register keeps a new passkey.
func (k *Keys) Register(p contract.Principal, proof contract.Proof) error {
	if err := k.usable(p); err != nil {
		return err
	}
	b, challenge, err := k.bound(p, proof.State, Subject{}, true)
	if err != nil {
		return err
	}
	w, who, err := k.known(p, b.Origin)
	if err != nil {
		return err
	}
	parsed, err := protocol.ParseCredentialCreationResponseBytes(proof.Credential)
	if err != nil {
		return refused("it cannot be read")
	}
	made, err := w.CreateCredential(who, webauthn.SessionData{
		Challenge: base64.RawURLEncoding.EncodeToString(challenge), RelyingPartyID: w.Config.RPID, UserID: who.WebAuthnID(),
		UserVerification: protocol.VerificationRequired, CredParams: webauthn.CredentialParametersDefault(),
	}, parsed)
	if err != nil {
		return refused("the authenticator's answer is not valid")
	}
	return k.change(func(all map[string][]registered) error {
		for _, others := range all {
			if slices.ContainsFunc(others, func(r registered) bool { return bytes.Equal(r.Credential.ID, made.ID) }) {
				return refused("it is registered already")
			}
		}
		if len(all[p.Name]) != len(who.keys) && len(all[p.Name]) >= maxKeys {
			return errors.New("too many passkeys")
		}
		all[p.Name] = append(all[p.Name], registered{k.now().UTC(), w.Config.RPID, *made})
		return nil
	})
}
