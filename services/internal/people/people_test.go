package people_test

import (
	"strings"
	"testing"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/people"
)

func TestOnePersonHasManyAccounts(t *testing.T) {
	d, err := people.New(people.Config{
		"ann": {Groups: []string{"ops"}, Accounts: []string{"cli", "irc/ann", "email/ann@example.org"}}, "bob": {},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ writer, from, want string }{
		{"ui-ann", "", "ann"},
		{"cli", "", "ann"},
		{"irc", "ann", "ann"},
		{"email", "ann@example.org", "ann"},
		{"ui-bob", "", "bob"},
		{"ui-eve", "", ""},
		{"irc", "bob", ""},
		{"irc", "", ""},
		{"ui-bob", "ann", ""},
		{"ann", "", ""},
	} {
		if got := d.Person(subject.Writer(c.writer), c.from); got != c.want {
			t.Errorf("%s/%s is %q, want %q", c.writer, c.from, got, c.want)
		}
	}
}

func TestWhatIsWrongWithPeople(t *testing.T) {
	for want, c := range map[string]people.Config{
		"people.a b: the name has to be":                               {"a b": {}},
		"people.ann: differs from Ann in upper and lower case alone":   {"Ann": {}, "ann": {}},
		"people.ops: ann has a group of this name; rename one of them": {"ann": {Groups: []string{"ops"}}, "ops": {}},
		`people.ann.groups[0] is "", want 1 to 61 characters`:          {"ann": {Groups: []string{""}}},
		`people.bob.accounts[0]: "cli" is an account of ann, too`:      {"ann": {Accounts: []string{"cli"}}, "bob": {Accounts: []string{"cli"}}},
		`people.ann.accounts[0]: "ui-bob" is an account of bob, too`:   {"ann": {Accounts: []string{"ui-bob"}}, "bob": {}},
		`people.ann.accounts[0]: "irc/": after the slash there are 0`:  {"ann": {Accounts: []string{"irc/"}}},
		`people.ann.accounts[0]: "a.b": want a writer, such as cli`:    {"ann": {Accounts: []string{"a.b"}}},
	} {
		if _, err := people.New(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
