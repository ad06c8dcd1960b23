package archtest

import (
	"fmt"
	"go/ast"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
)

// The longest a file and a service's main get, in lines.
const (
	maxLines     = 500
	maxMainLines = 60
)

// uses lists where the file names one of the identifiers of a package of the
// standard library.
func (f *File) uses(pkg string, names []string, why string) (out []string) {
	local := f.localName(pkg)
	switch local {
	case "", "_":
		return nil
	case ".":
		return []string{fmt.Sprintf("%s imports %s by dot, so nobody sees what it uses of it", f.Path, pkg)}
	}
	ast.Inspect(f.AST, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if x, ok := sel.X.(*ast.Ident); ok && x.Name == local && slices.Contains(names, sel.Sel.Name) {
			out = append(out, fmt.Sprintf("%s uses %s.%s; %s", f.Path, path.Base(pkg), sel.Sel.Name, why))
		}
		return true
	})
	return out
}

// localName is what the file calls an imported package, "" if it does not import it.
func (f *File) localName(pkg string) string {
	for _, spec := range f.AST.Imports {
		if p, err := strconv.Unquote(spec.Path.Value); err != nil || p != pkg {
			continue
		}
		if spec.Name != nil {
			return spec.Name.Name
		}
		return path.Base(pkg)
	}
	return ""
}

// breaches are a rule's findings by what an exception would name.
type breaches map[string][]string

// without lists the findings that no exception covers.
func (b breaches) without(exceptions map[string]string) (out []string) {
	for _, key := range slices.Sorted(maps.Keys(b)) {
		if _, ok := exceptions[key]; !ok {
			out = append(out, b[key]...)
		}
	}
	return out
}

// exceptionsAreNeeded keeps the tables of allow.go short.
func exceptionsAreNeeded(r *Repo) (out []string) {
	for _, table := range []struct {
		name       string
		exceptions map[string]string
		found      breaches
	}{
		{"exits", exits, exitsElsewhere(r)},
		{"longFiles", longFiles, tooLong(r)},
		{"naps", naps, sleeps(r)},
		{"skips", skips, ungatedSkips(r)},
	} {
		for _, key := range slices.Sorted(maps.Keys(table.exceptions)) {
			switch {
			case strings.TrimSpace(table.exceptions[key]) == "":
				out = append(out, fmt.Sprintf("archtest/allow.go: %s[%q] has no reason", table.name, key))
			case table.found[key] == nil:
				out = append(out, fmt.Sprintf("archtest/allow.go: %s[%q] is needed no more; remove it", table.name, key))
			}
		}
	}
	return out
}

func filesAreChapters(r *Repo) []string { return tooLong(r).without(longFiles) }

func tooLong(r *Repo) breaches {
	out := breaches{}
	for _, p := range r.packages() {
		for _, f := range p.Files {
			if f.Lines > maxLines && !ast.IsGenerated(f.AST) {
				out[f.Path] = []string{
					fmt.Sprintf("%s has %d lines, want at most %d: split the story, or give the reason in archtest/allow.go", f.Path,
						f.Lines, maxLines),
				}
			}
		}
	}
	return out
}

func mainsAreWiring(r *Repo) (out []string) {
	for _, p := range r.packages() {
		if p.Name != "main" || !strings.Contains(p.Path, "/cmd/") {
			continue
		}
		lines := 0
		for _, f := range p.Files {
			if !f.Test {
				lines += f.Lines
			}
		}
		if lines > maxMainLines {
			out = append(out,
				fmt.Sprintf("%s has %d lines, want at most %d: parse, connect, Run, drain; "+
					"the rest belongs to the service's package", p.Path, lines, maxMainLines))
		}
	}
	return out
}

func onlyMainExits(r *Repo) []string { return exitsElsewhere(r).without(exits) }

// exitsElsewhere leaves out what is for tests: there a test binary may run again
// as a server.
func exitsElsewhere(r *Repo) breaches {
	out := breaches{}
	for _, p := range r.packages() {
		if p.Name == "main" || isTestSupport(p) {
			continue
		}
		for _, f := range p.Files {
			if !f.Test { // TestMain exits
				const why = "only main ends the process; return an error"
				found := append(f.uses("os", []string{"Exit"}, why), f.uses("log", []string{"Fatal", "Fatalf", "Fatalln"}, why)...)
				if len(found) > 0 {
					out[p.Path] = append(out[p.Path], found...)
				}
			}
		}
	}
	return out
}

// requireVar is what .ci/run sets to `all`.
const requireVar = "SKANDHA_REQUIRE"

// MaySkip reports whether the test of the package (its import path) is listed among
// those that may skip even when everything is required.
func MaySkip(pkg, test string) bool {
	test, _, _ = strings.Cut(test, "/")
	for key := range skips {
		file, name, _ := strings.Cut(key, ":")
		if name == test && path.Join(root, path.Dir(file)) == pkg {
			return true
		}
	}
	return false
}

func skipsAreGated(r *Repo) []string { return ungatedSkips(r).without(skips) }

// ungatedSkips wants the variable in every function that skips. A fuzz target
// skips inputs, not itself.
func ungatedSkips(r *Repo) breaches {
	out := breaches{}
	for _, p := range r.packages() {
		for _, f := range p.Files {
			for _, decl := range f.AST.Decls {
				fn, ok := decl.(*ast.FuncDecl)
				if !ok || fn.Body == nil || strings.HasPrefix(fn.Name.Name, "Fuzz") || !skipsATest(fn.Body) ||
					mentions(fn.Body, requireVar) {
					continue
				}
				out[f.Path+":"+fn.Name.Name] = []string{
					fmt.Sprintf("%s: %s skips whatever %s says; fail when it is \"all\"", f.Path, fn.Name.Name, requireVar),
				}
			}
		}
	}
	return out
}

func skipsATest(body ast.Node) (found bool) {
	ast.Inspect(body, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		sel, ok := call.Fun.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		x, ok := sel.X.(*ast.Ident)
		found = found ||
			ok && slices.Contains([]string{"t", "b", "tb"}, x.Name) &&
				slices.Contains([]string{"Skip", "Skipf", "SkipNow"}, sel.Sel.Name)
		return true
	})
	return found
}

// mentions reports whether the code contains the literal.
func mentions(body ast.Node, literal string) (found bool) {
	ast.Inspect(body, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && strings.Contains(lit.Value, literal) {
			found = true
		}
		return true
	})
	return found
}

func testsDoNotSleep(r *Repo) []string { return sleeps(r).without(naps) }

// sleeps lets tests on synthetic time sleep: it costs them nothing and is exact.
func sleeps(r *Repo) breaches {
	out := breaches{}
	for _, p := range r.packages() {
		for _, f := range p.Files {
			if !f.Test || slices.Contains(f.imports(), "testing/synctest") {
				continue
			}
			if found := f.uses("time", []string{"Sleep"},
				"wait for the event, or poll its condition with a deadline"); len(found) > 0 {
				out[p.Path] = append(out[p.Path], found...)
			}
		}
	}
	return out
}
