package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"skandha.dev/services/internal/signature"
	"skandha.dev/services/listener/contract"
)

const maxSignatures = 32

// fault describes what is wrong with a request.
type fault struct {
	status int
	field  string
	msg    string
}

func (f *fault) Error() string { return f.field + ": " + f.msg }

func wrong(status int, field, format string, args ...any) *fault {
	return &fault{status, field, fmt.Sprintf(format, args...)}
}

// verify returns nil if the request is signed with one of the keys.
func verify(keys [][]byte, h http.Header, body []byte, now time.Time) *fault {
	id, f := inputID(h)
	if f != nil {
		return f
	}
	if id == "" {
		return wrong(http.StatusBadRequest, signature.HeaderID, "the header is missing; sign by the Standard Webhooks scheme")
	}
	timestamp, f := checkTimestamp(h, now)
	if f != nil {
		return f
	}
	signatures, err := parseSignatures(h.Values(signature.HeaderSignature))
	if err != nil {
		return wrong(http.StatusBadRequest, signature.HeaderSignature, "%v", err)
	}
	fits := false
	for _, key := range keys {
		want := signature.Sum(key, id, timestamp, body)
		for _, s := range signatures {
			fits = hmac.Equal(want, s) || fits // compare all, so that the time reveals nothing
		}
	}
	if !fits {
		return wrong(http.StatusUnauthorized, signature.HeaderSignature,
			"no signature matches the id, timestamp and body as received; check the secret, "+
				"and sign exactly the bytes that are sent")
	}
	return nil
}

// inputID returns the webhook-id; empty if there is none.
func inputID(h http.Header) (string, *fault) {
	ids := h.Values(signature.HeaderID)
	if len(ids) > 1 {
		return "", wrong(http.StatusBadRequest, signature.HeaderID, "the header is present %d times; send it once", len(ids))
	}
	if len(ids) == 0 {
		return "", nil
	}
	if err := contract.CheckID(ids[0]); err != nil {
		return "", wrong(http.StatusBadRequest, signature.HeaderID, "%v", err)
	}
	return ids[0], nil
}

func checkTimestamp(h http.Header, now time.Time) (string, *fault) {
	all := h.Values(signature.HeaderTimestamp)
	if len(all) != 1 {
		return "", wrong(http.StatusBadRequest, signature.HeaderTimestamp,
			"the header is present %d times; send it once, with the Unix time in seconds", len(all))
	}
	n, err := strconv.ParseInt(all[0], 10, 64)
	if err != nil || strconv.FormatInt(n, 10) != all[0] {
		return "", wrong(http.StatusBadRequest, signature.HeaderTimestamp, "want the Unix time in seconds, decimal")
	}
	if limit := int64(Tolerance / time.Second); n < now.Unix()-limit || n > now.Unix()+limit {
		return "", wrong(http.StatusUnauthorized, signature.HeaderTimestamp,
			"more than %s off the server's clock; sign the request again, and check your clock", Tolerance)
	}
	return all[0], nil
}

// parseSignatures reads the signatures of version v1; it ignores those of other
// versions.
func parseSignatures(values []string) ([][]byte, error) {
	var out [][]byte
	n := 0
	for _, value := range values {
		for s := range strings.FieldsSeq(value) {
			if n++; n > maxSignatures {
				return nil, fmt.Errorf("more than %d signatures", maxSignatures)
			}
			v, text, ok := strings.Cut(s, ",")
			if !ok {
				return nil, errors.New("want signatures such as v1,K5oZ…=, separated by spaces")
			}
			if v != signature.Version {
				continue
			}
			b, err := base64.StdEncoding.Strict().DecodeString(text)
			if err != nil || len(b) != sha256.Size {
				return nil, fmt.Errorf("a %s signature is not the base64 of %d bytes", signature.Version, sha256.Size)
			}
			out = append(out, b)
		}
	}
	if len(out) == 0 {
		return nil, errors.New("no signature of version v1; send v1,<base64 of HMAC-SHA256 over id.timestamp.body>")
	}
	return out, nil
}
