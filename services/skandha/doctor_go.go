package main

import (
	"fmt"
	"go/version"
	"strings"
)

// minGo is the oldest toolchain that this program may be built with: before Go 1.26.5 a
// symbolic link with a trailing slash led out of an os.Root (GO-2026-4970), and file tools
// are confined by one. go.mod requires it, too.
const minGo = "go1.26.5"

// goFinding judges the toolchain that this program was built with.
func goFinding(built string) finding {
	name, _, _ := strings.Cut(built, " ") // what follows are experiments
	f := finding{ok: true, need: true, what: "Go toolchain: " + name}
	switch {
	case !version.IsValid(name):
		f.advice = "a development version, which cannot be compared"
	case version.Compare(name, minGo) < 0:
		f.ok = false
		f.advice = fmt.Sprintf("it lets file tools leave the workspace (GO-2026-4970): build with %s or newer", minGo)
	}
	return f
}
