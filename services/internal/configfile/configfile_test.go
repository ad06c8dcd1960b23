package configfile_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"skandha.dev/services/internal/configfile"
)

type Common struct {
	Zone string `yaml:"zone"`
}

type sample struct {
	Name  string            `yaml:"name"`
	Count int               `yaml:"count"`
	Size  *uint8            `yaml:"size"`
	Rate  float64           `yaml:"rate"`
	On    *bool             `yaml:"on"`
	Wait  time.Duration     `yaml:"wait"`
	List  []string          `yaml:"list"`
	Args  map[string]string `yaml:"args"`
	Parts map[string]part   `yaml:"parts"`
}

type part struct {
	Common `yaml:",inline"`
	Text   string `yaml:"text"`
}

func TestValuesThatDoNotFitAreNamed(t *testing.T) {
	for file, want := range map[string]string{
		"count: many":                        `line 1: count is "many", want a whole number`,
		"count: 1.5":                         "line 1: count is 1.5, want a whole number",
		"size: 256":                          "line 1: size is 256, want a whole number",
		"rate: fast":                         `line 1: rate is "fast", want a number`,
		"on: maybe":                          `line 1: on is "maybe", want true or false`,
		"wait: 15":                           "line 1: wait is 15, want a duration such as 15m or 30s",
		"wait: soon":                         `line 1: wait is "soon", want a duration such as 15m or 30s`,
		"wait: [1s]":                         "line 1: wait is a list, want a duration such as 15m or 30s",
		"name: 5":                            "line 1: name is a number, want text: put it in quotes",
		"name: true":                         "line 1: name is true or false, want text: put it in quotes",
		"name: {}":                           "line 1: name is keys and values, want text",
		"list: s3cret":                       "line 1: list is text, want a list",
		"list:\n  - a\n  - 5":                "line 3: list[1] is a number, want text: put it in quotes",
		"parts: x":                           "line 1: parts is text, want keys and values",
		"parts:\n  a:\n    txet: x":          "line 3: parts.a.txet: unknown key, did you mean text?",
		"parts:\n  a:\n    colour: x":        "line 3: parts.a.colour: unknown key, want one of text, zone",
		"parts:\n  a: &a {zone: 1}\n  b: *a": "line 2: parts.a.zone is a number, want text: put it in quotes",
		"parts:\n  a: {<<: {zoen: x}}":       "line 2: parts.a.zoen: unknown key, did you mean zone?",
		"name: a\nname: b":                   "line 2: name: duplicate key, first on line 1",
		"{[a]: b}":                           "line 1: the file has a key that is a list, want text",
		"- a":                                "line 1: the file is a list, want keys and values",
		"name: a\n---\nname: b":              "line 2: a second document begins here; use one document per file",
		"name: a\n b: c":                     "line 2: mapping values are not allowed in this context",
		"count: " + strings.Repeat("x", 100): `line 1: count is "` + strings.Repeat("x", 60) + `…", want a whole number`,
		"count: x\nwait: 5\nlist: y\nname: {}\non: 3": "line 5: on is 3, want true or false",
	} {
		var s sample
		err := configfile.Decode([]byte(file), &s)
		var all configfile.Problems
		if !errors.As(err, &all) || all[len(all)-1].String() != want {
			t.Errorf("%q: %v\nwant %s", file, err, want)
		}
		if n := strings.Count(file, "\n") + 1; strings.HasPrefix(file, "count: x\n") && len(all) != n {
			t.Errorf("%q: %d problems, want %d", file, len(all), n)
		}
	}
}

func TestValuesThatFit(t *testing.T) {
	for _, file := range []string{
		"", "# nothing", "---\n", "name:\ncount:\nlist:\nparts:\n",
		"name: a\ncount: 3\nsize: 255\nrate: 1\non: true\nwait: 1m30s\nlist: [a, '5']",
		"name: 2030-01-01", "args: {port: 8080, dry: true}",
		"parts:\n  a: &a {zone: x}\n  b: *a\n  c: {<<: *a, text: y}\n  d:\n",
	} {
		var s sample
		if err := configfile.Decode([]byte(file), &s); err != nil {
			t.Errorf("%q: %v", file, err)
		}
	}
	var s sample
	if err := configfile.Decode([]byte("parts: {a: &a {zone: x}, b: {<<: *a, text: y}}\nargs: {port: 8080}"),
		&s); err != nil ||
		s.Parts["b"] != (part{Common{"x"}, "y"}) || s.Args["port"] != "8080" {
		t.Errorf("read %+v, %v", s, err)
	}
}

func TestASectionIsDecodedAlone(t *testing.T) {
	var s sample
	found, err := configfile.Section([]byte("agents: [what, ever]\nui: {name: x}\n"), "ui", &s)
	if !found || err != nil || s.Name != "x" {
		t.Errorf("%v, %v, %+v", found, err, s)
	}
	if found, err = configfile.Section([]byte("agents: {}\n"), "ui", &s); found || err != nil {
		t.Errorf("without the section: %v, %v", found, err)
	}
	_, err = configfile.Section([]byte("polcy: []\nui:\n  count: x\n"), "ui", &s)
	if want := "line 1: polcy: unknown key, did you mean policy?\n" +
		"line 3: ui.count is \"x\", want a whole number"; err == nil || err.Error() != want {
		t.Errorf("%v\nwant %s", err, want)
	}
}

// What a check finds has no line for itself: it is that of the path it begins with.
func TestChecksGetTheLineOfTheirPath(t *testing.T) {
	path := filepath.Join(t.TempDir(), "skandha.yaml")
	file := "name: a\nlist:\n  - a\n  - b\nparts:\n  a.b:\n    text: x\n  a: {zone: y}\n"
	if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := configfile.Read(path, func(b []byte) (s sample, err error) {
		err = configfile.Decode(b, &s)
		return s, err
	}, func(sample) error {
		return errors.New("parts.a.zone: bad\nparts.a.b.text is bad\nlist[1] is bad\nlist[7] is bad\nparts.c is missing\n" +
			"names is bad")
	})
	want := []string{
		": names is bad", ":2: list[7] is bad", ":4: list[1] is bad", ":5: parts.c is missing", ":7: parts.a.b.text is bad",
		":8: parts.a.zone: bad",
	}
	if err == nil || err.Error() != path+strings.Join(want, "\n"+path) {
		t.Errorf("%v\nwant %s", err, strings.Join(want, "\n"))
	}
	if _, err := configfile.Read(path+"x", func([]byte) (int, error) { return 0, nil }, nil); !errors.Is(err,
		os.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
}

func TestJoinKeepsTheOrderOfTheFile(t *testing.T) {
	twice := configfile.Problem{File: "f", Line: 3, Text: "c"}
	err := configfile.Join(configfile.Problems{twice}, nil, configfile.Problems{{File: "f", Line: 1, Text: "a"}, twice})
	if err == nil || err.Error() != "f:1: a\nf:3: c" {
		t.Errorf("%v", err)
	}
	if err := configfile.Join(nil, nil); err != nil {
		t.Errorf("of nothing comes %v", err)
	}
}

func TestSecretsAreTheFilesThatAreNamed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "skandha.yaml")
	file := "ui:\n  owner: file:/run/owner\n  tls_key: key.pem\n  tls_cert: cert.pem\n" +
		"  tokens: [{name: a, token: 'file:b'}, {name: c, token: 'env:C'}]\n"
	if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(configfile.Secrets(path), " "); got != "/run/owner key.pem b" {
		t.Errorf("got %s", got)
	}
	if got := configfile.Secrets(""); got != nil {
		t.Errorf("without a file: %q", got)
	}
}
