// Package examples holds plugins and listeners in Python, Node and shell, for
// people to read, to start and to copy. README.md explains the protocol for any
// other language.
//
// The only Go in it is [Files], which the skeletons of `skandha plugins new` share with
// the examples, and tests, which start each program beside a live system
// and check what the agent does then.
package examples

import "embed"

// Files are the files that a plugin in each language needs beside its own.
//
//go:embed python/skandha.py node/skandha.mjs node/package-lock.json shell/bus.sh
var Files embed.FS
