package buildinfo

import (
	"os"
	"path/filepath"
	"strings"
)

// Command is how this program was called, for commands that it prints: bin/skandha, or
// skandha if it is on the path.
func Command() string {
	if called := os.Args[0]; filepath.Base(called) == "skandha" && strings.ContainsRune(called, filepath.Separator) && !strings.ContainsAny(called, " '\"$") {
		return called
	}
	return "skandha"
}
