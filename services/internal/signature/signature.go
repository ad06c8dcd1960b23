// Package signature signs requests by the scheme of Standard Webhooks, version v1: HMAC-SHA256 over the id, the time
// and the body. It is pure.
package signature

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// The headers of the scheme.
const (
	HeaderID        = "webhook-id"
	HeaderTimestamp = "webhook-timestamp"
	HeaderSignature = "webhook-signature"
)

// Version is the version of the signatures.
const Version = "v1"

// A secret is secretPrefix and the base64 of at least minSecret bytes; the scheme says 24 to 64.
const (
	secretPrefix = "whsec_"
	minSecret    = 16
)

// Key returns the key of a secret whsec_….
func Key(secret string) ([]byte, error) {
	text, ok := strings.CutPrefix(secret, secretPrefix)
	key, err := base64.StdEncoding.DecodeString(text)
	if !ok || err != nil || len(key) < minSecret {
		return nil, fmt.Errorf("want %s and the base64 of %d bytes or more", secretPrefix, minSecret)
	}
	return key, nil
}

// Sign returns the signature of a request.
func Sign(key []byte, id string, at time.Time, body []byte) string {
	return Version + "," + base64.StdEncoding.EncodeToString(Sum(key, id, strconv.FormatInt(at.Unix(), 10), body))
}

// Sum returns the HMAC.
func Sum(key []byte, id, timestamp string, body []byte) []byte {
	mac := hmac.New(sha256.New, key)
	for _, part := range []string{id, ".", timestamp, "."} {
		mac.Write([]byte(part)) // never fails
	}
	mac.Write(body)
	return mac.Sum(nil)
}
