package deps

import (
	"encoding/json"
	"os/exec"
	"reflect"
	"strings"
	"testing"
)

// pipReads returns how pip's own parsers read lines of arguments.
const pipReads = `
import json, sys
from pip._internal.req.constructors import parse_req_from_line
from pip._vendor.packaging.utils import canonicalize_name
from pip._vendor.packaging.specifiers import SpecifierSet
out = []
for text in json.load(sys.stdin):
    try:
        parts = parse_req_from_line(text, None)
        req = parts.requirement
        out.append({
            "name": canonicalize_name(req.name), "extras": sorted(req.extras), "plain": parts.link is None and parts.markers is None and req.url is None,
            "specs": sorted(s.operator + (str(s.version)) for s in req.specifier), "text": text,
        })
    except Exception as e:
        out.append({"name": "", "text": text, "error": repr(e)})
json.dump(out, sys.stdout)
`

// Admitted entries mean the same to pip: only a name with versions.
func TestPipReadsTheSame(t *testing.T) {
	python := python(t)
	var corpus []Requirement
	for _, name := range []string{
		"numpy", "Foo.Bar__b", "x", "7zip", "foo.zip", "foo.tar.gz", "a.whl", "requirements.txt", "git", "file", "http",
	} {
		for _, extras := range []string{"", "[e]", "[E_1, b.c]"} {
			for _, specs := range []string{
				"", "==1.0", "== V1.0-ALPHA.2", "==1.0-3", "==1.0.rev2", "!=1.4.*,>=1", "~=1.4.2", "==2!01.00", "==2.1.0+CPU_01",
				"<1.0.dev3", "<=1.0c1", ">1.0b2.post345.dev456", "==1.0-preview",
			} {
				corpus = append(corpus, want(t, name+extras+specs)...)
			}
		}
	}
	type reading struct {
		Name, Text, Error string
		Extras, Specs     []string
		Plain             bool
	}
	asked, err := json.Marshal(Requirements(corpus).Strings())
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), python, "-I", "-c", pipReads)
	cmd.Stdin = strings.NewReader(string(asked))
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var read []reading
	if err := json.Unmarshal(out, &read); err != nil {
		t.Fatal(err)
	}
	if len(read) != len(corpus) || len(read) < 400 {
		t.Fatalf("pip has read %d of %d", len(read), len(corpus))
	}
	for i, r := range corpus {
		if got := read[i]; got.Error != "" || !got.Plain || got.Name != r.Name() || !same(got.Extras, r.extras) ||
			!same(got.Specs, r.specs) {
			t.Errorf("pip reads %q as %+v", r, got)
		}
	}
}

func same(a, b []string) bool { return len(a) == len(b) && (len(a) == 0 || reflect.DeepEqual(a, b)) }

// Versions are normalised like pip does.
func TestVersionsAreNormalisedAsPipDoes(t *testing.T) {
	python := python(t)
	given := []string{
		"1", "v1.0", "1.0-ALPHA.2", "1.0c", "1.0-3", "1.0.rev2", "1.0-dev", "2!01.00", "0!1", "2.1.0+CPU_01.Ab-7",
		"1.0b2.post345.dev456",
		"1.0-preview_4", "1.0_beta", "1.0.post", "1.0r", "0001.0002", "1.0a.dev", "1.0.0-1.dev5",
	}
	var ours []string
	for _, v := range given {
		got, err := parseVersion("==", v)
		if err != nil {
			t.Fatal(err)
		}
		ours = append(ours, got)
	}
	asked, err := json.Marshal(given)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), python, "-I", "-c", `
import json, sys
from pip._vendor.packaging.version import Version
json.dump([str(Version(v)) for v in json.load(sys.stdin)], sys.stdout)`)
	cmd.Stdin = strings.NewReader(string(asked))
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var theirs []string
	if err := json.Unmarshal(out, &theirs); err != nil || !reflect.DeepEqual(ours, theirs) {
		t.Errorf("given %q\nours  %q\npip's %q (%v)", given, ours, theirs, err)
	}
}
