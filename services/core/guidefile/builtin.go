package guidefile

import (
	"embed"
	"io/fs"
	"strings"

	"skandha.dev/pkg/guide"
)

// Default is the name of the guide that an agent without a system prompt begins with.
const Default = "default"

//go:embed builtin/*.md
var builtin embed.FS

// BuiltIn returns a built-in guide, and the text of its file.
func BuiltIn(name string) (g guide.Guide, file []byte, ok bool) {
	file, err := builtin.ReadFile("builtin/" + name + ext)
	if err != nil {
		return guide.Guide{}, nil, false
	}
	if g, err = Parse(name+ext, name, file); err != nil {
		panic(err) // TestBuiltInGuides reads them all
	}
	return g, file, true
}

// BuiltInNames lists the built-in guides.
func BuiltInNames() (names []string) {
	files, err := fs.ReadDir(builtin, "builtin")
	if err != nil {
		panic(err) // it is embedded
	}
	for _, f := range files {
		names = append(names, strings.TrimSuffix(f.Name(), ext))
	}
	return names
}
