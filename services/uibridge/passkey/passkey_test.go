package passkey

import (
	"strings"
	"testing"
	"time"

	"skandha.dev/services/uibridge/contract"
)

const origin = "http://localhost:7070"

var (
	ann      = contract.Principal{Name: "ann", Login: "one"}
	approval = Subject{Agent: "main", Session: "s1", ConfirmationID: "t1-p1-c0", Hash: "abc"}
)

// What comes back must be what was made for this person, login and approval, in time.
func TestAChallengeIsForOneApproval(t *testing.T) {
	now := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	k := New(t.TempDir(), []byte("key"))
	k.now = func() time.Time { return now }
	state, challenge := k.bind(ann, origin, approval, false)
	if _, again := k.bind(ann, origin, approval, false); string(again) == string(challenge) {
		t.Error("two challenges are the same")
	}
	if b, got, err := k.bound(ann, state, approval, false); err != nil || string(got) != string(challenge) || b.Origin != origin {
		t.Fatalf("%+v, %v", b, err)
	}
	otherLogin, bob, otherCall, otherSession := ann, ann, approval, approval
	otherLogin.Login, bob.Name, otherCall.Hash, otherSession.Session = "two", "bob", "abd", "s2"
	payload, signature, _ := strings.Cut(state, ".")
	for name, c := range map[string]struct {
		p      contract.Principal
		state  string
		s      Subject
		create bool
		after  time.Duration
		want   string
	}{
		"another login":      {otherLogin, state, approval, false, 0, "for another login"},
		"another person":     {bob, state, approval, false, 0, "for another login"},
		"another call":       {ann, state, otherCall, false, 0, "for something else"},
		"another session":    {ann, state, otherSession, false, 0, "for something else"},
		"a registration":     {ann, state, approval, true, 0, "for something else"},
		"too late":           {ann, state, approval, false, life, "too late"},
		"a changed state":    {ann, "x" + state, approval, false, 0, "not one of this bridge"},
		"without signature":  {ann, payload, approval, false, 0, "not one of this bridge"},
		"only the signature": {ann, "." + signature, approval, false, 0, "not one of this bridge"},
		"nothing":            {ann, "", approval, false, 0, "not one of this bridge"},
	} {
		k.now = func() time.Time { return now.Add(c.after) }
		if _, _, err := k.bound(c.p, c.state, c.s, c.create); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
	if _, _, err := New(t.TempDir(), []byte("another key")).bound(ann, state, approval, false); err == nil {
		t.Error("another bridge accepts it")
	}
}

func TestWhoMayRegisterAPasskey(t *testing.T) {
	now := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	k := New(t.TempDir(), []byte("key"))
	k.now = func() time.Time { return now }
	fresh, old, program := ann, ann, contract.Principal{Name: "bot"}
	fresh.Began, old.Began = now.Add(-time.Minute), now.Add(-11*time.Minute)
	if _, err := k.New(fresh, origin, nil); err != nil {
		t.Error(err)
	}
	for name, c := range map[string]struct {
		p      contract.Principal
		origin string
		want   string
	}{
		"a login from a while ago": {old, origin, "within ten minutes after logging in"},
		"a program":                {program, origin, "passkeys are used on the page"},
		"a page at an address":     {fresh, "http://127.0.0.1:7070", "need the page at a host name"},
	} {
		if _, err := k.New(c.p, c.origin, nil); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
	if err := k.change(func(all map[string][]registered) error {
		all["ann"] = []registered{{Host: "another.example"}}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := k.New(fresh, origin, nil); err == nil {
		t.Error("a further passkey needs no proof of the first")
	}
	if _, err := k.Challenge(fresh, origin, approval); err == nil || !strings.Contains(err.Error(), "no passkey for this page") {
		t.Error(err)
	}
	if err := k.Verify(fresh, approval, &contract.Proof{}); err == nil {
		t.Error("nothing is no proof")
	}
	none := New("", nil)
	if _, err := none.Challenge(fresh, origin, approval); err == nil || !strings.Contains(err.Error(), "keeps no passkeys") {
		t.Error(err)
	}
}
