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
)

// The example of the Standard Webhooks libraries.
func TestSignatureIsThatOfTheStandard(t *testing.T) {
	key, err := base64.StdEncoding.DecodeString("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	if err != nil {
		t.Fatal(err)
	}
	got := Sign(key, "msg_p5jXN8AQM9LWM0D4loKWxJek", time.Unix(1614265330, 0), []byte(`{"test": 2432232314}`))
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
		h.Set(HeaderID, "msg_1")
		h.Set(HeaderTimestamp, strconv.FormatInt(at.Unix(), 10))
		h.Set(HeaderSignature, Sign(key, "msg_1", at, body))
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
	good := Sign(current, "msg_1", now, body)
	other := Sign(strange, "msg_1", now, body)
	for name, c := range map[string]struct {
		header http.Header
		body   string
		status int
		field  string
	}{
		"signed by the new secret":     {header: signed(current, now)},
		"signed by the old secret":     {header: signed(old, now)},
		"signed by another secret":     {header: signed(strange, now), status: 401, field: HeaderSignature},
		"several signatures, one fits": {header: with(HeaderSignature, other+" v1a,whatever "+good)},
		"several signatures, none fits": {
			header: with(HeaderSignature, other+" "+other), status: 401, field: HeaderSignature,
		},
		"signatures in two headers": {
			header: func() http.Header { h := with(HeaderSignature, other); h.Add(HeaderSignature, good); return h }(),
		},
		"of another version alone": {
			header: with(HeaderSignature, "v2,"+strings.TrimPrefix(good, "v1,")), status: 400, field: HeaderSignature,
		},
		"half a signature": {
			header: with(HeaderSignature, good[:20]), status: 400, field: HeaderSignature,
		},
		"another body": {
			header: signed(current, now), body: `{"text":"hello!"}`, status: 401, field: HeaderSignature,
		},
		"another id": {header: with(HeaderID, "msg_2"), status: 401, field: HeaderSignature},
		"another timestamp": {
			header: with(HeaderTimestamp, strconv.FormatInt(now.Unix()+1, 10)), status: 401, field: HeaderSignature,
		},
		"a timestamp that shifts the cut": {
			header: with(HeaderID, "msg_1."+strconv.FormatInt(now.Unix(), 10)), status: 401, field: HeaderSignature,
		},
		"five minutes old": {header: signed(current, now.Add(-Tolerance))},
		"older": {
			header: signed(current, now.Add(-Tolerance-time.Second)), status: 401, field: HeaderTimestamp,
		},
		"five minutes ahead": {header: signed(current, now.Add(Tolerance))},
		"further ahead": {
			header: signed(current, now.Add(Tolerance+time.Second)), status: 401, field: HeaderTimestamp,
		},
		"a timestamp in milliseconds": {
			header: with(HeaderTimestamp, "1700000000000"), status: 401, field: HeaderTimestamp,
		},
		"a timestamp that overflows": {
			header: with(HeaderTimestamp, "-9223372036854775808"), status: 401, field: HeaderTimestamp,
		},
		"a timestamp with leading zeros": {
			header: with(HeaderTimestamp, "01700000000"), status: 400, field: HeaderTimestamp,
		},
		"a timestamp that is none": {header: with(HeaderTimestamp, "now"), status: 400, field: HeaderTimestamp},
		"no id":                    {header: without(HeaderID), status: 400, field: HeaderID},
		"no timestamp":             {header: without(HeaderTimestamp), status: 400, field: HeaderTimestamp},
		"no signature":             {header: without(HeaderSignature), status: 400, field: HeaderSignature},
		"two ids":                  {header: twice(HeaderID), status: 400, field: HeaderID},
		"two timestamps":           {header: twice(HeaderTimestamp), status: 400, field: HeaderTimestamp},
		"an id that is too long": {
			header: with(HeaderID, strings.Repeat("i", 129)), status: 400, field: HeaderID,
		},
		"more signatures than anybody can need": {
			header: with(HeaderSignature, strings.Repeat(other+" ", 33)), status: 400, field: HeaderSignature,
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
		Sign([]byte("key"), "id", time.Unix(1, 0), nil), "v1," + strings.Repeat("A", 43) + "=\nv1,x",
		"v1," + strings.Repeat("0", 42) + "1=",
	} {
		f.Add(s)
	}
	key := []byte("a secret key")
	now := time.Unix(1_700_000_000, 0)
	want := sum(key, "id", strconv.FormatInt(now.Unix(), 10), []byte("{}"))
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
		h.Set(HeaderID, "id")
		h.Set(HeaderTimestamp, strconv.FormatInt(now.Unix(), 10))
		h[http.CanonicalHeaderKey(HeaderSignature)] = []string{value}
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
