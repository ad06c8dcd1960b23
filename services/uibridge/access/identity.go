package access

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/coreos/go-oidc/v3/oidc"
)

// identity is what a provider says about a person.
type identity struct {
	Subject  string
	Email    string
	Verified verified
	Groups   []string
}

// email returns the address, if the provider has verified it.
func (i identity) email() string {
	if !i.Verified {
		return ""
	}
	return i.Email
}

// verified is the claim email_verified, which some providers send as text.
type verified bool

// UnmarshalJSON implements json.Unmarshaler. Anything but true means false.
func (v *verified) UnmarshalJSON(b []byte) error {
	*v = string(b) == "true" || string(b) == `"true"`
	return nil
}

func identityOf(id *oidc.IDToken, groups string) (identity, error) {
	var c struct {
		Email    string   `json:"email"`
		Verified verified `json:"email_verified"`
	}
	var all map[string]json.RawMessage
	if err := id.Claims(&c); err != nil {
		return identity{}, fmt.Errorf("id token: %w", err)
	}
	if err := id.Claims(&all); err != nil {
		return identity{}, fmt.Errorf("id token: %w", err)
	}
	who := identity{Subject: id.Subject, Email: c.Email, Verified: c.Verified}
	var one string
	switch raw := all[groups]; { // a list, or a single group
	case len(raw) == 0 || json.Unmarshal(raw, &who.Groups) == nil:
	case json.Unmarshal(raw, &one) == nil:
		who.Groups = []string{one}
	default:
		return identity{}, fmt.Errorf("id token: the claim %s is no list of texts", groups)
	}
	return who, nil
}

func mac(key []byte, text string) []byte {
	m := hmac.New(sha256.New, key)
	m.Write([]byte(text))
	return m.Sum(nil)
}

// seal encodes and signs a value for a browser to keep.
func seal(key []byte, purpose string, v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // plain fields
	}
	payload := encoding.EncodeToString(b)
	return payload + "." + encoding.EncodeToString(mac(key, purpose+"."+payload))
}

// unseal decodes what seal has signed for the same purpose.
func unseal(key []byte, purpose, sealed string, v any) bool {
	payload, signature, _ := strings.Cut(sealed, ".")
	b, err := encoding.DecodeString(payload)
	sum, err2 := encoding.DecodeString(signature)
	return err == nil && err2 == nil && hmac.Equal(sum, mac(key, purpose+"."+payload)) && json.Unmarshal(b, v) == nil
}
