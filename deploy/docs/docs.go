// Package docs has the pages of this folder, for `skandha docs`. It is a separate module
// because the pages are outside of the services' module, and an embedded file cannot be.
package docs

import "embed"

// Pages are the pages: NAME.md, and the generated ones in reference/.
//
//go:embed *.md reference/*.md
var Pages embed.FS
