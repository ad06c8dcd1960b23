package buildinfo

import (
	"os"
	"path/filepath"
	"strings"
)

// Command returns how this program was called, for commands that it prints: bin/skandha, or
// skandha if it is on the path.
func Command() string {
	called := os.Args[0]
	path := filepath.Base(called) == "skandha" && strings.ContainsRune(called, filepath.Separator)
	if path && !strings.ContainsAny(called, " '\"$;&()*`") { // a shell would interpret it
		return called
	}
	return "skandha"
}
