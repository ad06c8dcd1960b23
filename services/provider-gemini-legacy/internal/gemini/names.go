package gemini

import (
	"unicode/utf8"

	"skandha.dev/pkg/subject"
)

// maxFunctionName is the length of a function's name that every version of the API accepts.
const maxFunctionName = 64

// wireName returns a tool's name as the API accepts it: it begins with a letter or an
// underscore. A name that a model invented may be too long; it is cut, because otherwise the
// API would refuse each later request of the conversation.
func wireName(tool string) string {
	name := subject.Encode(tool)
	if c := name[0]; c == '-' || c >= '0' && c <= '9' {
		name = "_" + name
	}
	return name[:min(len(name), maxFunctionName)]
}

// toolName decodes a name that the model wrote and that no offered tool has. A name that is
// not encoded stays as it is.
func toolName(wire string) string {
	if name, err := subject.Decode(wire); err == nil && utf8.ValidString(name) {
		return name
	}
	return wire
}
