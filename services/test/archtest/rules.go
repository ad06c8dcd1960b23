package archtest

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
)

// Rule is one promise about the tree. Check lists its breaches, each with the
// place and what to do.
type Rule struct {
	Name  string
	Check func(*Repo) []string
}

// Rules are all the promises.
func Rules() []Rule {
	return []Rule{
		{"the contract packages import the standard library and each other", contractIsPure},
		{"pkg is light", sdkIsLight},
		{"plugins in separate modules use the SDK alone", guestsUseTheSDK},
		{"decide and planner reach no bus, no clock and no chance", coreIsPure},
		{"one package owns a library", librariesHaveOwners},
		{"drivers and adapters are imported by mains and tests", driversAreChosenByMains},
		{"services do not import each other", servicesAreApart},
		{"the product imports nothing of the tests", productIsApart},
		{"compatibility APIs are clients of the bridge's contract", compatIsApart},
		{"packages have names that say something", namesSaySomething},
		{"packages have a comment", packagesAreDocumented},
		{"files are chapters", filesAreChapters},
		{"mains of services are wiring", mainsAreWiring},
		{"only main exits", onlyMainExits},
		{"a test that skips fails when everything is required", skipsAreGated},
		{"tests do not sleep", testsDoNotSleep},
		{"exceptions are needed", exceptionsAreNeeded},
		{"the tables name what exists", tablesAreCurrent},
	}
}

// packages are the repository's, in order.
func (r *Repo) packages() []*Package {
	return slices.SortedFunc(maps.Values(r.Packages), func(a, b *Package) int { return strings.Compare(a.Path, b.Path) })
}

// within reports whether the import path is that of the root or below it.
func within(p, root string) bool { return p == root || strings.HasPrefix(p, root+"/") }

func withinAny(p string, roots []string) bool {
	return slices.ContainsFunc(roots, func(root string) bool { return within(p, root) })
}

// isStandard follows the go command: a standard package's first element has no dot.
func isStandard(p string) bool {
	first, _, _ := strings.Cut(p, "/")
	return !strings.Contains(first, ".")
}

// missing is a breach: a rule about a package that is not there checks nothing.
func (r *Repo) missing(paths []string) (out []string) {
	for _, p := range paths {
		if r.Packages[p] == nil {
			out = append(out, fmt.Sprintf("%s is not there; if it was renamed, rename it in archtest/allow.go", p))
		}
	}
	return out
}

func contractIsPure(r *Repo) []string {
	out := r.missing(contract)
	for _, p := range r.packages() {
		if !slices.Contains(contract, p.Path) {
			continue
		}
		for _, imp := range p.Imports(false) {
			if !slices.Contains(contract, imp) && (!isStandard(imp) || slices.Contains(impure, imp)) {
				out = append(out,
					fmt.Sprintf("%s imports %s; it is contract: types, and what the standard library computes", p.Path, imp))
			}
		}
	}
	return out
}

func sdkIsLight(r *Repo) (out []string) {
	m := r.Modules[sdk]
	if m == nil {
		return []string{"module " + sdk + " is not there"}
	}
	for _, req := range m.Requires {
		if !withinAny(req, sdkRequires) {
			out = append(out, fmt.Sprintf("pkg/go.mod requires %s; every plugin author would get it too", req))
		}
	}
	for _, p := range r.packages() {
		if p.Module != sdk {
			continue
		}
		for _, tests := range []bool{false, true} {
			for _, imp := range p.Imports(tests) {
				if !isStandard(imp) && !within(imp, sdk) && !withinAny(imp, sdkImports) {
					out = append(out,
						fmt.Sprintf("%s imports %s; pkg depends on the NATS client and the OTel API alone", p.Path, imp))
				}
			}
		}
	}
	return out
}

// guestsUseTheSDK looks at tests too, and at who imports a guest.
func guestsUseTheSDK(r *Repo) (out []string) {
	for _, guest := range guests {
		if r.Modules[guest] == nil {
			out = append(out, "module "+guest+" is not there; if it was renamed, rename it in archtest/allow.go")
		}
	}
	for _, p := range r.packages() {
		for _, imp := range append(p.Imports(false), p.Imports(true)...) {
			switch inside := slices.Contains(guests, p.Module); {
			case inside && within(imp, root) && !within(imp, sdk) && !within(imp, p.Module):
				out = append(out, fmt.Sprintf("%s imports %s; a plugin uses %s alone", p.Path, imp, sdk))
			case !inside && withinAny(imp, guests):
				out = append(out, fmt.Sprintf("%s imports %s; start the plugin as a process", p.Path, imp))
			}
		}
	}
	return out
}

// coreIsPure looks at the pure packages and at all that they import of this project.
func coreIsPure(r *Repo) []string {
	out := r.missing(pure)
	todo := slices.Clone(pure)
	for i := 0; i < len(todo); i++ {
		p := r.Packages[todo[i]]
		if p == nil {
			continue
		}
		for _, imp := range p.Imports(false) {
			switch {
			case r.Packages[imp] != nil:
				if !slices.Contains(todo, imp) {
					todo = append(todo, imp)
				}
			case slices.Contains(computing, imp):
			case !isStandard(imp) || slices.Contains(impure, imp):
				out = append(out, fmt.Sprintf("%s imports %s; deciding is a pure function", p.Path, imp))
			}
		}
		for _, f := range p.Files {
			if !f.Test {
				out = append(out, f.uses("time", clock, "deciding reads no clock; take the time as an argument")...)
			}
		}
	}
	return out
}

func librariesHaveOwners(r *Repo) (out []string) {
	for _, p := range r.packages() {
		for _, imp := range p.Imports(false) {
			for lib, owners := range owned {
				if within(imp, lib) && !withinAny(p.Path, owners) {
					out = append(out, fmt.Sprintf("%s imports %s; go through %s", p.Path, imp, owners[0]))
				}
			}
		}
	}
	return out
}

// driver reports whether the package is, or belongs to, an implementation that mains choose.
func driver(p string) bool { return choosers[p] != "" || implementation(p) != "" }

// implementation returns the implementation that the package belongs to, or nothing.
func implementation(p string) string {
	for family, others := range families {
		if rest, ok := strings.CutPrefix(p, family+"/"); ok {
			child, _, _ := strings.Cut(rest, "/")
			if _, isOther := others[child]; !isOther {
				return family + "/" + child
			}
		}
	}
	return ""
}

func driversAreChosenByMains(r *Repo) (out []string) {
	for _, p := range r.packages() {
		if p.Name == "main" || withinAny(p.Path, []string{command, bench}) || choosers[p.Path] != "" || isTestSupport(p) {
			continue
		}
		for _, imp := range p.Imports(false) {
			own := implementation(imp) != "" && implementation(imp) == implementation(p.Path)
			if driver(imp) && !own && path.Dir(imp) != p.Path && !within(p.Path, imp) {
				out = append(out,
					fmt.Sprintf("%s imports %s, an implementation; take its interface, and let the main choose", p.Path, imp))
			}
		}
	}
	return out
}

// isTestSupport reports whether the package exists for tests.
func isTestSupport(p *Package) bool { return within(p.Path, support) }

func productIsApart(r *Repo) (out []string) {
	for _, p := range r.packages() {
		if isTestSupport(p) {
			continue
		}
		for _, imp := range p.Imports(false) {
			if within(imp, support) {
				out = append(out,
					fmt.Sprintf("%s imports %s; what exists for tests is imported by tests, and what exists for users lies elsewhere",
						p.Path, imp))
			}
		}
	}
	return out
}

func servicesAreApart(r *Repo) (out []string) {
	for _, p := range r.packages() {
		if withinAny(p.Path, []string{command, bench}) || isTestSupport(p) {
			continue
		}
		for _, imp := range p.Imports(false) {
			rest, ok := strings.CutPrefix(imp, services+"/")
			if !ok || within(imp, internal) {
				continue
			}
			service, _, _ := strings.Cut(rest, "/")
			if !within(p.Path, services+"/"+service) && service != "test" {
				out = append(out,
					fmt.Sprintf("%s imports %s; services meet on the bus, what they share lies in services/internal", p.Path, imp))
			}
		}
	}
	return out
}

func compatIsApart(r *Repo) (out []string) {
	out = r.missing(append([]string{compat}, compatUses...))
	for _, p := range r.packages() {
		if isTestSupport(p) {
			continue
		}
		for _, imp := range p.Imports(false) {
			switch inside := within(p.Path, compat); {
			case inside && within(imp, bridge) && !within(imp, compat) && !slices.Contains(compatUses, imp):
				out = append(out, fmt.Sprintf("%s imports %s; use the contract, as any other client", p.Path, imp))
			case !inside && within(imp, compat) && p.Path != bridge:
				out = append(out, fmt.Sprintf("%s imports %s; only the bridge's mux knows the compatibility APIs", p.Path, imp))
			}
		}
	}
	return out
}

func namesSaySomething(r *Repo) (out []string) {
	for _, p := range r.packages() {
		if slices.Contains(badNames, p.Name) || slices.Contains(badNames, path.Base(p.Path)) {
			out = append(out, fmt.Sprintf("%s: the name says nothing about what is inside; name the noun", p.Path))
		}
	}
	return out
}

func packagesAreDocumented(r *Repo) (out []string) {
	for _, p := range r.packages() {
		has := func(f *File) bool { return f.AST.Doc != nil && strings.TrimSpace(f.AST.Doc.Text()) != "" }
		if !slices.ContainsFunc(p.Files, has) {
			out = append(out, fmt.Sprintf("%s has no package comment; say what it is for (doc.go)", p.Path))
		}
	}
	return out
}
