package skills_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"skandha.dev/pkg/event"
	"skandha.dev/services/internal/executor"
	"skandha.dev/services/toolrunner/tools"
	"skandha.dev/services/toolrunner/tools/skills"
)

func TestMistakesInASkill(t *testing.T) {
	for settings, want := range map[string]string{
		"name: pdf\ndescription: d": "",
		"name: pdf\ndescription: d\nlicense: MIT\ncompatibility: c\nmetadata: {author: a, version: 1.0}\n" +
			"allowed-tools: Read Bash(git:*)": "",
		"description: d":              "SKILL.md: name is",
		"name: pdf":                   "SKILL.md: description has 0 characters",
		"name: PDF\ndescription: d":   `SKILL.md:2: name is "PDF"`,
		"name: -pdf\ndescription: d":  `SKILL.md:2: name is "-pdf"`,
		"name: p--df\ndescription: d": `SKILL.md:2: name is "p--df"`,
		"name: word\ndescription: d":  `SKILL.md:2: name is "word", want "pdf" as the folder`,
		"name: pdf\ndescription: " + strings.Repeat("\u00e9", 1025):              "SKILL.md:3: description has 1025 characters",
		"name: pdf\ndescription: d\ncompatibility: " + strings.Repeat("x", 501):  "SKILL.md:4: compatibility has 501",
		"name: pdf\ndescription: d\nmetadata: {a: [b]}":                          "SKILL.md:4: metadata.a is a list, want text",
		"name: pdf\ndescription: d\nallowed-tools: [a]":                          "SKILL.md:4: allowed-tools is not text",
		"name: pdf\ndescription: d\nallowed-tools: ' , '":                        "SKILL.md:4: allowed-tools names no tool",
		"name: pdf\ndescription: d\nallowed-tools: " + strings.Repeat("x", 2049): "SKILL.md:4: allowed-tools has 2049",
		"name: pdf\ndescription: d\nallowed_tools: a":                            "SKILL.md:4: allowed_tools: unknown key",
		"name: pdf\ndescription:":                                                "SKILL.md:3: description is empty",
	} {
		_, err := skills.Parse("SKILL.md", "pdf", []byte("---\n"+settings+"\n---\nDo it."))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: %v, want %s", settings, err, want)
		}
	}
	if _, err := skills.Parse("SKILL.md", strings.Repeat("a", 65),
		[]byte("---\nname: "+strings.Repeat("a", 65)+"\ndescription: d\n---\n")); err == nil {
		t.Error("a name of 65 letters is accepted")
	}
}

// places is a workspace and a directory with skills.
type places struct {
	*testing.T
	workspace, dir string
	library        *skills.Library
}

func newPlaces(t *testing.T, protect ...string) *places {
	p := &places{T: t, workspace: t.TempDir(), dir: filepath.Join(t.TempDir(), "skills")}
	root, err := os.OpenRoot(p.workspace)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = root.Close() })
	p.library = skills.New(skills.InWorkspace(root, protect...), skills.InDirectory(p.dir))
	return p
}

func (p *places) write(name, text string) {
	p.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, []byte(text), 0o600)); err != nil {
		p.Fatal(err)
	}
}

func (p *places) skill(dir, name, description, body string) {
	p.Helper()
	p.write(filepath.Join(dir, name, "SKILL.md"),
		fmt.Sprintf("---\nname: %s\ndescription: %s\n---\n%s\n", name, description, body))
}

func (p *places) names() (names, wrong []string) {
	list, errs := p.library.List()
	for _, s := range list {
		names = append(names, s.Name+"="+s.Description)
	}
	for _, err := range errs {
		wrong = append(wrong, err.Error())
	}
	return names, wrong
}

// call returns the tool's data or its error.
func (p *places) call(name string, args any) string {
	p.Helper()
	list := p.library.Tools()
	i := slices.IndexFunc(list, func(t tools.Tool) bool { return t.Spec.Name == name })
	body, err := json.Marshal(args)
	if err != nil {
		p.Fatal(err)
	}
	r := list[i].Run(context.Background(), tools.Call{Args: body})
	if r.Error != nil {
		return "error: " + r.Error.Message
	}
	return string(r.Data)
}

func TestSkillsAreListed(t *testing.T) {
	p := newPlaces(t)
	if names, wrong := p.names(); names != nil || wrong != nil {
		t.Errorf("without places: %q, %q", names, wrong)
	}
	in := filepath.Join(p.workspace, "skills")
	p.skill(in, "pdf", "of the workspace", "x")
	p.skill(p.dir, "pdf", "of the operator", "x")
	p.skill(in, "word", "Writes.", "x")
	p.skill(in, "bad", "[", "x")
	p.write(filepath.Join(in, "README.md"), "x")
	p.write(filepath.Join(in, "notes", "x.md"), "x")
	outside := t.TempDir()
	p.skill(outside, "far", "d", "x")
	p.write(filepath.Join(in, "linked", "x"), "")
	if err := errors.Join(os.Symlink(filepath.Join(outside, "far"), filepath.Join(in, "far")),
		os.Symlink(filepath.Join(outside, "far", "SKILL.md"), filepath.Join(in, "linked", "SKILL.md"))); err != nil {
		t.Fatal(err)
	}
	names, wrong := p.names()
	if !slices.Equal(names, []string{"pdf=of the operator", "word=Writes."}) {
		t.Errorf("listed are %q", names)
	}
	if len(wrong) != 2 || !strings.HasPrefix(wrong[0], "skills/bad/SKILL.md:") || !strings.Contains(wrong[1], "escapes") {
		t.Errorf("wrong are %q", wrong)
	}
}

// A folder skills that leads out of the workspace is not read.
func TestALinkedFolderOfSkills(t *testing.T) {
	p := newPlaces(t)
	outside := t.TempDir()
	p.skill(outside, "far", "d", "x")
	if err := os.Symlink(outside, filepath.Join(p.workspace, "skills")); err != nil {
		t.Fatal(err)
	}
	if names, wrong := p.names(); len(names) != 0 || len(wrong) != 1 {
		t.Errorf("%q, %q", names, wrong)
	}
}

func TestSkillsAreLoadedAndRead(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	p := newPlaces(t, secret)
	p.write(secret, "hush")
	at := filepath.Join(p.workspace, "skills", "pdf")
	long := "Fill in forms. See references/forms.md.\n" + strings.Repeat("More. ", 4000)
	p.skill(filepath.Join(p.workspace, "skills"), "pdf", "d", long)
	p.skill(filepath.Join(p.workspace, "skills"), "word", "d", "Write.")
	p.write(filepath.Join(at, "references", "forms.md"), "Forms.")
	p.write(filepath.Join(at, "logo.png"), "\x89PNG\r\n\x1a\n\x00")
	if err := errors.Join(os.Link(secret, filepath.Join(at, "hard")), os.Symlink(secret, filepath.Join(at, "soft"))); err != nil {
		t.Fatal(err)
	}
	got := p.loaded()
	if got.Name != "pdf" || got.Source != "skills/pdf/SKILL.md" || !got.Truncated ||
		!strings.HasPrefix(got.Instructions, "Fill in forms.") ||
		!slices.Equal(got.Files, []string{"hard", "logo.png", "references/forms.md"}) {
		t.Errorf("%.300v", got)
	}
	for _, c := range []struct{ name, path, want string }{
		{"pdf", "references/forms.md", `"content":"Forms."`},
		{"pdf", "SKILL.md", `"next_offset":`},
		{"pdf", "../word/SKILL.md", "error: "},
		{"pdf", "/etc/passwd", "error: "},
		{"pdf", "soft", "error: "},
		{"pdf", "hard", "error: "},
		{"pdf", "logo.png", "binary"},
		{"pdf", "none.md", "error: "},
		{"none", "x", "no skill is called \"none\"; there are: pdf, word"},
		{"../skills/pdf", "x", "no skill is called"},
	} {
		out := p.call("skills:read", map[string]string{"name": c.name, "path": c.path})
		if !strings.Contains(out, c.want) || strings.Contains(out, "hush") || strings.Contains(out, "Write.") {
			t.Errorf("%s %s: %.200s, want %s", c.name, c.path, out, c.want)
		}
	}
	p.write(filepath.Join(p.workspace, "skills", "bad", "SKILL.md"), "---\nx: 1\n---\n")
	if out := p.call("skills:load", map[string]string{"name": "bad"}); !strings.Contains(out, "skills/bad/SKILL.md:2: x: unknown key") {
		t.Error(out)
	}
}

// loaded is what a test reads of a result of skills:load.
type loaded struct {
	Name, Source, Instructions, Revision string
	Truncated                            bool
	Files                                []string
	AllowedTools                         []string `json:"allowed_tools"`
}

func (p *places) loaded() (got loaded) {
	p.Helper()
	if err := json.Unmarshal([]byte(p.call("skills:load", map[string]string{"name": "pdf"})), &got); err != nil {
		p.Fatal(err)
	}
	return got
}

// What a skill allows is beside the data, which may be cut, and as the file says it.
func TestAllowedToolsAreInTheMetadata(t *testing.T) {
	p := newPlaces(t)
	for written, want := range map[string][]string{
		"":                                     nil,
		"allowed-tools: math:evaluate":         {"math:evaluate"},
		"allowed-tools: Read, Grep  file:* ,x": {"Read", "Grep", "file:*", "x"},
		"allowed-tools: Bash(git add:*, * ) Bash(* x": {"Bash(git add:*, * )", "Bash(* x"},
		"allowed-tools: a) b":                         {"a)", "b"},
	} {
		p.write(filepath.Join(p.dir, "pdf", "SKILL.md"), "---\nname: pdf\ndescription: d\n"+written+"\n---\nx\n")
		list := p.library.Tools()
		i := slices.IndexFunc(list, func(t tools.Tool) bool { return t.Spec.Name == "skills:load" })
		r := list[i].Run(context.Background(), tools.Call{Args: []byte(`{"name":"pdf"}`)})
		s, limits := r.Metadata[executor.MetadataSkill].(event.Skill)
		if limits != (want != nil) || !slices.Equal(s.AllowedTools, want) || limits && s.Name != "pdf" ||
			!slices.Equal(p.loaded().AllowedTools, want) {
			t.Errorf("%s: %+v", written, r)
		}
	}
}

func TestASkillThatChangesAfterItWasLoaded(t *testing.T) {
	p := newPlaces(t)
	p.skill(p.dir, "pdf", "d", "One.")
	p.write(filepath.Join(p.dir, "pdf", "x.md"), "X.")
	before := p.loaded().Revision
	p.skill(p.dir, "pdf", "d", "Two.")
	read := func(revision string) string {
		return p.call("skills:read", map[string]string{"name": "pdf", "path": "x.md", "revision": revision})
	}
	if out := read(before); !strings.Contains(out, "the skill pdf has changed since it was loaded; load it again") {
		t.Error(out)
	}
	if out := read(p.loaded().Revision); !strings.Contains(out, "X.") {
		t.Error(out)
	}
}

func TestScanningIsBounded(t *testing.T) {
	p := newPlaces(t)
	for i := range 20 {
		p.skill(p.dir, fmt.Sprintf("skill-%02d", i), "d", strings.Repeat("x", 250<<10))
	}
	list, wrong := p.library.List()
	if len(list) != 16 || len(wrong) != 1 ||
		!strings.Contains(wrong[0].Error(), "more than 4194304 bytes; skill-16 and those after it") {
		t.Errorf("%d skills, %v", len(list), wrong)
	}
	in := filepath.Join(p.workspace, "skills")
	for i := range 2001 {
		p.write(filepath.Join(in, fmt.Sprintf("f%d", i)), "")
	}
	if _, wrong = p.library.List(); len(wrong) != 2 ||
		!strings.Contains(wrong[0].Error(), "skills has more than 2000 entries") {
		t.Errorf("%v", wrong)
	}
}

// A folder skills that is a link inside of the workspace could be written to under its own name.
func TestALinkInsideOfTheWorkspace(t *testing.T) {
	p := newPlaces(t)
	p.skill(filepath.Join(p.workspace, "docs"), "pdf", "d", "x")
	if err := os.Symlink("docs", filepath.Join(p.workspace, "skills")); err != nil {
		t.Fatal(err)
	}
	if names, wrong := p.names(); len(names) != 0 || len(wrong) != 1 || !strings.Contains(wrong[0], "symbolic link") {
		t.Errorf("%q, %q", names, wrong)
	}
}

func TestTheListForTheModelIsBounded(t *testing.T) {
	p := newPlaces(t)
	for i := range 110 {
		p.skill(p.dir, fmt.Sprintf("skill-%03d", i), `"two\nlines `+strings.Repeat("x", 200)+`"`, "x")
	}
	list, wrong := p.library.List()
	if len(list) != 100 || len(wrong) != 1 || !strings.Contains(wrong[0].Error(), "more than 100 skills") {
		t.Errorf("%d skills, %v", len(list), wrong)
	}
	text := skills.Describe(list)
	if len(text) > 9<<10 || !strings.Contains(text, "\n- skill-000: two lines x") || !strings.Contains(text, "more skills are not listed") {
		t.Errorf("%d bytes: %.200s", len(text), text)
	}
}
