package webhook

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"skandha.dev/services/internal/signature"
)

// The example of the Standard Webhooks libraries.
func TestSignatureIsThatOfTheStandard(t *testing.T) {
	key, err := base64.StdEncoding.DecodeString("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	if err != nil {
		t.Fatal(err)
	}
	got := signature.Sign(key, "msg_p5jXN8AQM9LWM0D4loKWxJek", time.Unix(1614265330, 0), []byte(`{"test": 2432232314}`))
	if want := "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="; got != want {
		t.Errorf("the signature is %s, want %s", got, want)
	}
}

func TestVerification(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	old, current, strange := []byte("old-secret-of-ours!!"), []byte("new-secret-of-ours!!"),
		[]byte("somebody else's one!!")
	body := []byte(`{"text":"hello"}`)
	signed := func(key []byte, at time.Time) http.Header {
		h := http.Header{}
		h.Set(signature.HeaderID, "msg_1")
		h.Set(signature.HeaderTimestamp, strconv.FormatInt(at.Unix(), 10))
		h.Set(signature.HeaderSignature, signature.Sign(key, "msg_1", at, body))
		return h
	}
	with := func(field, value string) http.Header {
		h := signed(current, now)
		h.Set(field, value)
		return h
	}
	without := func(field string) http.Header {
		h := signed(current, now)
		h.Del(field)
		return h
	}
	twice := func(field string) http.Header {
		h := signed(current, now)
		h.Add(field, h.Get(field))
		return h
	}
	good := signature.Sign(current, "msg_1", now, body)
	other := signature.Sign(strange, "msg_1", now, body)
	for name, c := range map[string]struct {
		header http.Header
		body   string
		status int
		field  string
	}{
		"signed by the new secret":     {header: signed(current, now)},
		"signed by the old secret":     {header: signed(old, now)},
		"signed by another secret":     {header: signed(strange, now), status: 401, field: signature.HeaderSignature},
		"several signatures, one fits": {header: with(signature.HeaderSignature, other+" v1a,whatever "+good)},
		"several signatures, none fits": {
			header: with(signature.HeaderSignature, other+" "+other), status: 401, field: signature.HeaderSignature,
		},
		"signatures in two headers": {
			header: func() http.Header {
				h := with(signature.HeaderSignature, other)
				h.Add(signature.HeaderSignature, good)
				return h
			}(),
		},
		"of another version alone": {
			header: with(signature.HeaderSignature, "v2,"+strings.TrimPrefix(good, "v1,")), status: 400, field: signature.HeaderSignature,
		},
		"half a signature": {
			header: with(signature.HeaderSignature, good[:20]), status: 400, field: signature.HeaderSignature,
		},
		"another body": {
			header: signed(current, now), body: `{"text":"hello!"}`, status: 401, field: signature.HeaderSignature,
		},
		"another id": {header: with(signature.HeaderID, "msg_2"), status: 401, field: signature.HeaderSignature},
		"another timestamp": {
			header: with(signature.HeaderTimestamp, strconv.FormatInt(now.Unix()+1, 10)), status: 401, field: signature.HeaderSignature,
		},
		"a timestamp that shifts the cut": {
			header: with(signature.HeaderID, "msg_1."+strconv.FormatInt(now.Unix(), 10)), status: 401, field: signature.HeaderSignature,
		},
		"five minutes old": {header: signed(current, now.Add(-Tolerance))},
		"older": {
			header: signed(current, now.Add(-Tolerance-time.Second)), status: 401, field: signature.HeaderTimestamp,
		},
		"five minutes ahead": {header: signed(current, now.Add(Tolerance))},
		"further ahead": {
			header: signed(current, now.Add(Tolerance+time.Second)), status: 401, field: signature.HeaderTimestamp,
		},
		"a timestamp in milliseconds": {
			header: with(signature.HeaderTimestamp, "1700000000000"), status: 401, field: signature.HeaderTimestamp,
		},
		"a timestamp that overflows": {
			header: with(signature.HeaderTimestamp, "-9223372036854775808"), status: 401, field: signature.HeaderTimestamp,
		},
		"a timestamp with leading zeros": {
			header: with(signature.HeaderTimestamp, "01700000000"), status: 400, field: signature.HeaderTimestamp,
		},
		"a timestamp that is none": {header: with(signature.HeaderTimestamp, "now"), status: 400, field: signature.HeaderTimestamp},
		"no id":                    {header: without(signature.HeaderID), status: 400, field: signature.HeaderID},
		"no timestamp":             {header: without(signature.HeaderTimestamp), status: 400, field: signature.HeaderTimestamp},
		"no signature":             {header: without(signature.HeaderSignature), status: 400, field: signature.HeaderSignature},
		"two ids":                  {header: twice(signature.HeaderID), status: 400, field: signature.HeaderID},
		"two timestamps":           {header: twice(signature.HeaderTimestamp), status: 400, field: signature.HeaderTimestamp},
		"an id that is too long": {
			header: with(signature.HeaderID, strings.Repeat("i", 129)), status: 400, field: signature.HeaderID,
		},
		"more signatures than anybody can need": {
			header: with(signature.HeaderSignature, strings.Repeat(other+" ", 33)), status: 400, field: signature.HeaderSignature,
		},
	} {
		t.Run(name, func(t *testing.T) {
			if c.body == "" {
				c.body = string(body)
			}
			f := verify([][]byte{old, current}, c.header, []byte(c.body), now)
			switch {
			case c.status == 0 && f != nil:
				t.Errorf("refused: %v", f)
			case c.status != 0 && (f == nil || f.status != c.status || f.field != c.field || f.msg == ""):
				t.Errorf("answered %+v, want %d with the field %s", f, c.status, c.field)
			}
		})
	}
}

// Whatever the header contains, parseSignatures returns what was written, and
// nothing passes that was not signed.
func FuzzSignatureHeader(f *testing.F) {
	for _, s := range []string{
		"", " ", "v1", "v1,", "v1,AAAA", ",", "v1,,", "v1a,x v1,y", "V1,AAAA", "\x00", "v1," + strings.Repeat("A", 43) + "=",
		signature.Sign([]byte("key"), "id", time.Unix(1, 0), nil), "v1," + strings.Repeat("A", 43) + "=\nv1,x",
		"v1," + strings.Repeat("0", 42) + "1=",
	} {
		f.Add(s)
	}
	key := []byte("a secret key")
	now := time.Unix(1_700_000_000, 0)
	want := signature.Sum(key, "id", strconv.FormatInt(now.Unix(), 10), []byte("{}"))
	f.Fuzz(func(t *testing.T, value string) {
		found, err := parseSignatures([]string{value})
		if (err == nil) != (len(found) > 0) {
			t.Fatalf("%d signatures and the error %v", len(found), err)
		}
		if len(found) > maxSignatures {
			t.Fatalf("%d signatures", len(found))
		}
		signed := false
		for _, s := range found {
			if len(s) != sha256.Size ||
				!strings.Contains(value, "v1,"+base64.StdEncoding.EncodeToString(s)) && !strings.ContainsAny(value, "\r\n") {
				t.Fatalf("parsing %q returned %x, which it does not contain", value, s)
			}
			signed = signed || bytes.Equal(s, want)
		}
		h := http.Header{}
		h.Set(signature.HeaderID, "id")
		h.Set(signature.HeaderTimestamp, strconv.FormatInt(now.Unix(), 10))
		h[http.CanonicalHeaderKey(signature.HeaderSignature)] = []string{value}
		if (verify([][]byte{key}, h, []byte("{}"), now) == nil) != signed {
			t.Fatalf("%q: let through: %t, signed: %t", value, !signed, signed)
		}
	})
}

func TestBodiesThatAreNoObject(t *testing.T) {
	for _, body := range []string{
		"", "null", "[]", `"x"`, "1", `{"a":1} {"b":2}`, `{"a":1}x`, `{"a":`, "{\"a\":\"\xff\"}", "\ufeff{}",
	} {
		if v, f := decode([]byte(body)); f == nil || f.status != http.StatusBadRequest || f.field != "body" {
			t.Errorf("%q is read as %v, fault %v", body, v, f)
		}
	}
}
