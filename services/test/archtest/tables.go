package archtest

import (
	"fmt"
	"maps"
	"slices"
)

// tablesAreCurrent finds lines of allow.go that name what is gone. The tables of
// exceptions are the subject of [exceptionsAreNeeded].
func tablesAreCurrent(r *Repo) (out []string) {
	stale := func(table, key, why string) {
		out = append(out, fmt.Sprintf("archtest/allow.go: %s[%q] %s; remove it", table, key, why))
	}
	for _, lib := range slices.Sorted(maps.Keys(owned)) {
		for _, owner := range owned[lib] {
			if !r.imports(owner, lib) {
				stale("owned", lib, "is imported nowhere within "+owner)
			}
		}
	}
	for _, family := range slices.Sorted(maps.Keys(families)) {
		if !slices.ContainsFunc(r.packages(), func(p *Package) bool { return within(p.Path, family) && driver(p.Path) }) {
			stale("families", family, "has no implementation")
		}
		for _, other := range slices.Sorted(maps.Keys(families[family])) {
			if !r.has(family + "/" + other) {
				stale("families", family+"/"+other, "does not exist")
			}
		}
	}
	for _, p := range slices.Sorted(maps.Keys(choosers)) {
		if !r.has(p) {
			stale("choosers", p, "does not exist")
		}
	}
	for _, lib := range computing {
		if !r.imports(internal, lib) {
			stale("computing", lib, "is imported nowhere within "+internal)
		}
	}
	for _, lib := range sdkImports {
		if !r.imports(sdk, lib) {
			stale("sdkImports", lib, "is not imported by pkg")
		}
	}
	if m := r.Modules[sdk]; m != nil {
		for _, lib := range sdkRequires {
			if !slices.ContainsFunc(m.Requires, func(required string) bool { return within(required, lib) }) {
				stale("sdkRequires", lib, "is not required by pkg/go.mod")
			}
		}
	}
	return out
}

// has reports whether there is a package at the path or below it.
func (r *Repo) has(path string) bool {
	return slices.ContainsFunc(r.packages(), func(p *Package) bool { return within(p.Path, path) })
}

// imports reports whether a package within root, or one of its tests, imports the library.
func (r *Repo) imports(root, lib string) bool {
	return slices.ContainsFunc(r.packages(), func(p *Package) bool {
		return within(p.Path, root) &&
			slices.ContainsFunc(append(p.Imports(false), p.Imports(true)...), func(imp string) bool { return within(imp, lib) })
	})
}
