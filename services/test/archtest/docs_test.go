package archtest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	mdLink = regexp.MustCompile(`\]\(([^)#:]+)(#[^)]*)?\)`)
	mdPath = regexp.MustCompile("`((?:services|pkg|core|internal|uibridge|provider|toolrunner|sandbox|listener|skandha|schemas|deploy)/[a-z0-9_./-]+)`")
	mdTest = regexp.MustCompile("`(Test[A-Z]\\w+)`")
)

// What the pages link to, and the files and tests that they name, exist.
func TestPagesNameWhatExists(t *testing.T) {
	root := "../../.."
	pages, err := filepath.Glob(filepath.Join(root, "deploy/docs/*.md"))
	if err != nil || len(pages) == 0 {
		t.Fatalf("no pages: %v", err)
	}
	tests := testNames(t, root)
	for _, page := range append(pages, filepath.Join(root, "README.md"), filepath.Join(root, "services/README.md"),
		filepath.Join(root, "services/provider-gemini-legacy/README.md")) {
		b, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range mdLink.FindAllStringSubmatch(string(b), -1) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(page), m[1])); err != nil {
				t.Errorf("%s links to %s: %v", page, m[1], err)
			}
		}
		for _, m := range mdPath.FindAllStringSubmatch(string(b), -1) {
			if !exists(filepath.Join(root, m[1])) && !exists(filepath.Join(root, "services", m[1])) {
				t.Errorf("%s names %s, which does not exist", page, m[1])
			}
		}
		for _, m := range mdTest.FindAllStringSubmatch(string(b), -1) {
			if !tests[m[1]] {
				t.Errorf("%s names the test %s, which does not exist", page, m[1])
			}
		}
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// testNames are the names of all tests.
func testNames(t *testing.T, root string) map[string]bool {
	t.Helper()
	declared := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	names := map[string]bool{}
	for _, module := range []string{"services", "pkg"} {
		err := filepath.WalkDir(filepath.Join(root, module), func(path string, _ os.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, "_test.go") {
				return err
			}
			b, err := os.ReadFile(path)
			for _, m := range declared.FindAllStringSubmatch(string(b), -1) {
				names[m[1]] = true
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return names
}
