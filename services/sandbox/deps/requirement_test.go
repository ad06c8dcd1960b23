package deps

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestWhatIsAdmitted(t *testing.T) {
	for entry, want := range map[string]string{
		"numpy":                        "numpy",
		"NumPy":                        "numpy",
		"  numpy  ":                    "numpy",
		"Foo.Bar__baz-.qux":            "foo-bar-baz-qux",
		"x":                            "x",
		"7zip":                         "7zip",
		"pandas==2.1.0":                "pandas==2.1.0",
		"pandas >= 2.0 , < 3":          "pandas<3,>=2.0",
		"pandas>=2,>=2":                "pandas>=2",
		"pandas[excel]":                "pandas[excel]",
		"pandas [ Perf_X , excel ]>=2": "pandas[excel,perf-x]>=2",
		"a~=1.4.2":                     "a~=1.4.2",
		"a!=1.5":                       "a!=1.5",
		"a==1.*":                       "a==1.*",
		"a!=1.4.*":                     "a!=1.4.*",
		"a==V1.0-ALPHA.2":              "a==1.0a2",
		"a==1.0c":                      "a==1.0rc0",
		"a==1.0-3":                     "a==1.0.post3",
		"a==1.0.REV2":                  "a==1.0.post2",
		"a==1.0-dev":                   "a==1.0.dev0",
		"a==2!01.00":                   "a==2!1.0",
		"a==0!1":                       "a==1",
		"torch==2.1.0+CPU_01":          "torch==2.1.0+cpu.1",
		"a==1.0b2.post345.dev456":      "a==1.0b2.post345.dev456",
		"foo.zip":                      "foo-zip", // which pip would take for a file as it was written
		"requirements.txt":             "requirements-txt",
	} {
		reqs, errs := Parse([]string{entry})
		if errs != nil {
			t.Errorf("%q: %v", entry, errs)
			continue
		}
		if got := reqs[0].String(); got != want {
			t.Errorf("%q is %q, want %q", entry, got, want)
		}
		again, errs := Parse([]string{want})
		if errs != nil || again[0].String() != want {
			t.Errorf("the canonical %q is read as %v, %v", want, again, errs)
		}
	}
}

func TestWhatIsNotAdmitted(t *testing.T) {
	for entry, why := range map[string]string{
		"":                                   "empty",
		"   ":                                "empty",
		"-r requirements.txt":                "options",
		"--index-url=http://evil.example":    "options",
		"-e .":                               "options",
		"--":                                 "options",
		"-":                                  "options",
		" --pre":                             "options",
		"http://evil.example/a.whl":          "URLs",
		"git+ssh://git@evil.example/a":       "URLs",
		"a @ https://evil.example/a.whl":     "URLs",
		"a@file:a.whl":                       "URLs",
		"file:a.whl":                         "not a package name",
		"./a":                                "paths",
		"../a":                               "paths",
		"/etc/passwd":                        "paths",
		"a/b":                                "paths",
		`a\b`:                                "paths",
		".":                                  "paths",
		".hidden":                            "paths",
		"a; python_version<'3'":              "markers",
		"a # comment":                        "comments",
		"a\n":                                "printable ASCII",
		"a\nb":                               "printable ASCII",
		"a\r\n--pre":                         "printable ASCII",
		"a\tb":                               "printable ASCII",
		"a\x00":                              "printable ASCII",
		"a\x1b[31m":                          "printable ASCII",
		"a\x7f":                              "printable ASCII",
		"num\u00a0py":                        "printable ASCII",
		"a\u2028b":                           "printable ASCII",
		"\u202enumpy":                        "printable ASCII",
		"nump\u0443":                         "printable ASCII", // Cyrillic
		"\u212aeras":                         "printable ASCII", // the Kelvin sign, which folds to k
		"a\u017f":                            "printable ASCII", // the long s, which folds to s
		"\uff0d\uff0dpre":                    "printable ASCII",
		"num\u200bpy":                        "printable ASCII",
		"a\xff":                              "printable ASCII",
		"a b":                                "not a package name",
		"numpy 1.0":                          "not a package name",
		"numpy pandas":                       "not a package name",
		"a,b":                                "not a package name",
		"a(>=1)":                             "not a package name",
		"a=1":                                "not a version",
		"a>1,":                               "not a version",
		"a>=1 --hash=sha256:00":              "not a version",
		"a>=":                                "not a version",
		"a> =1":                              "not a version",
		"a==1 0":                             "not a version",
		"a==one":                             "not a version as in PEP 440",
		"a==$(id)":                           "not a version as in PEP 440",
		"a==1.0.":                            "not a version as in PEP 440",
		"a==1.0,*":                           "not a version",
		"a==*":                               "not a version as in PEP 440",
		"a===1.0":                            "compares text",
		"a>=1.*":                             "does not accept .*",
		"a==1.0a1.*":                         "not a version as in PEP 440",
		"a==1.0+x.*":                         "not a version as in PEP 440",
		"a>=1.0+local":                       "does not accept a local",
		"a~=1":                               "at least two numbers",
		"a[":                                 "not a package name",
		"a[]":                                "not the name of an extra",
		"a[b,]":                              "not the name of an extra",
		"a[b]c":                              "not a package name",
		"a[../b]":                            "paths",
		"a>=1[b]":                            "not a version as in PEP 440",
		"a==1+b.zip":                         "path of an archive",
		"a==1+b-tar_gz":                      "path of an archive",
		"a==1+b.whl":                         "path of an archive",
		"-a":                                 "options",
		"a-":                                 "not a package name",
		"_a":                                 "not a package name",
		"a.":                                 "not a package name",
		"~a":                                 "not a package name",
		"$HOME":                              "not a package name",
		"%PATH%":                             "not a package name",
		"`id`":                               "not a package name",
		"a|b":                                "not a package name",
		"a&&b":                               "not a package name",
		"'a'":                                "not a package name",
		"a==1'":                              "not a version as in PEP 440",
		strings.Repeat("a", MaxEntryBytes+1): "129 bytes",
		"c:a":                                "not a package name",
	} {
		reqs, errs := Parse([]string{"fine", entry})
		if len(errs) != 1 || reqs != nil {
			t.Errorf("%q is read as %v, %v; want one error", entry, reqs, errs)
			continue
		}
		said := errs[0].Error()
		if !strings.Contains(said, why) || !strings.HasPrefix(said, "dependencies[1] \"") {
			t.Errorf("%q: %s; want dependencies[1] and %q", entry, said, why)
		}
		if regexp.MustCompile(`[^ -~…]`).MatchString(said) {
			t.Errorf("%q: the error %q repeats more than printable ASCII", entry, said)
		}
	}
}

func TestEveryEntryThatIsWrongIsNamed(t *testing.T) {
	_, errs := Parse([]string{"a", "-x", "b", "./c", "A==1", "b"})
	var at []int
	for _, err := range errs {
		var e *EntryError
		if errors.As(err, &e) {
			at = append(at, e.Index)
		}
	}
	if !slices.Equal(at, []int{1, 3, 4}) { // the same b twice is no contradiction
		t.Errorf("entries %v are wrong, want 1, 3 and 4: %v", at, errs)
	}
	if !strings.Contains(errs[2].Error(), "duplicate of a in dependencies[0]") {
		t.Errorf("%v does not say where a is", errs[2])
	}
	if _, errs := Parse(make([]string, MaxEntries+1)); len(errs) != 1 ||
		!strings.Contains(errs[0].Error(), "33 entries, want at most 32") {
		t.Errorf("too many entries: %v", errs)
	}
}

func TestOfANameInBothTheNewerCounts(t *testing.T) {
	got := Merge(want(t, "b>1", "a", "d"), want(t, "c", "B==2", "a[x]"))
	if s := fmt.Sprint(got.Strings()); s != "[a[x] b==2 c d]" {
		t.Errorf("got %s, want [a[x] b==2 c d]", s)
	}
	if s := fmt.Sprint(Merge(nil, nil).Strings()); s != "[]" {
		t.Errorf("nothing and nothing is %s", s)
	}
}

func TestTheIdDependsOnAllThatMakesASet(t *testing.T) {
	from := Origin{Platform: "p", Index: "https://user:old@packages.example.com/simple", Options: []string{"o"}}
	one := Hash(want(t, "a", "b==1"), from)
	if !regexp.MustCompile(`^[a-f0-9]{64}$`).MatchString(one) {
		t.Errorf("the id is %q, want 64 hex digits", one)
	}
	from.Index = "https://user:new@packages.example.com/simple"
	if Hash(Requirements{want(t, "B==v1")[0], want(t, "A")[0]}, from) != one {
		t.Error("the order, the spelling or a password changes the id")
	}
	ids := map[string]string{one: "the same"}
	for name, id := range map[string]string{
		"a version":  Hash(want(t, "a", "b==2"), from),
		"an extra":   Hash(want(t, "a[x]", "b==1"), from),
		"a package":  Hash(want(t, "a", "b==1", "c"), from),
		"a platform": Hash(want(t, "a", "b==1"), Origin{"q", from.Index, from.Options}),
		"an index":   Hash(want(t, "a", "b==1"), Origin{"p", "https://other.example.com/simple", from.Options}),
		"an option":  Hash(want(t, "a", "b==1"), Origin{"p", from.Index, []string{"o", ""}}),
	} {
		if other, ok := ids[id]; ok {
			t.Errorf("%s gives the id of %s", name, other)
		}
		ids[id] = name
	}
}

func TestRequirementsTravelAsTheyAreSpelled(t *testing.T) {
	text, err := json.Marshal(want(t, "pandas[excel]>=2", "a"))
	if err != nil || string(text) != `["a","pandas[excel]\u003e=2"]` {
		t.Fatalf("%s, %v", text, err)
	}
	var back Requirements
	if err := json.Unmarshal(text, &back); err != nil || fmt.Sprint(back.Strings()) != "[a pandas[excel]>=2]" {
		t.Errorf("%v, %v", back, err)
	}
	if err := json.Unmarshal([]byte(`["--pre"]`), &back); err == nil {
		t.Error("an option is admitted when it comes as JSON")
	}
}

// harmless matches what pip can only read as a name with versions: no
// leading dash, no separator of paths, no scheme, no "@", no marker, no archive.
var harmless = regexp.MustCompile(
	`^[a-z0-9]+(?:-[a-z0-9]+)*(?:\[[a-z0-9]+(?:-[a-z0-9]+)*(?:,[a-z0-9]+(?:-[a-z0-9]+)*)*\])?` +
		`(?:(?:==|!=|<=|>=|<|>|~=)[0-9][a-z0-9.!+*]*(?:,(?:==|!=|<=|>=|<|>|~=)[0-9][a-z0-9.!+*]*)*)?$`)

func FuzzWhatIsAdmittedIsHarmless(f *testing.F) {
	for _, seed := range []string{
		"numpy", "pandas[excel]>=2.0,<3", "-r x", "a==1+b.zip", "a @ http://x", "foo.tar.gz", "a==1.0-alpha.2", "\u212a==1",
		"a ; x", "a[b , c]!=1.*",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, entry string) {
		reqs, errs := Parse([]string{entry})
		if errs != nil {
			if len(errs) != 1 || len(errs[0].Error()) > 600 || regexp.MustCompile(`[^ -~…]`).MatchString(errs[0].Error()) {
				t.Fatalf("%q: %v", entry, errs)
			}
			return
		}
		got := reqs[0].String()
		lower := strings.ToLower(got)
		for _, ext := range []string{
			".zip", ".whl", ".tar", ".tar.gz", ".tgz", ".tbz", ".tar.bz2", ".txz", ".tlz", ".tar.lz", ".tar.lzma", ".tar.xz",
		} {
			if strings.HasSuffix(lower, ext) {
				t.Fatalf("%q becomes %q, an archive for pip", entry, got)
			}
		}
		if !harmless.MatchString(got) || len(got) > MaxEntryBytes {
			t.Fatalf("%q becomes %q", entry, got)
		}
		if again, errs := Parse([]string{got}); errs != nil || again[0].String() != got {
			t.Fatalf("%q becomes %q, which becomes %v, %v", entry, got, again, errs)
		}
	})
}
