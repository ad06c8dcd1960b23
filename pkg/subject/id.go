package subject

import (
	"errors"
	"fmt"
	"strings"
)

// MaxIDLen is the maximum length of an id, in bytes.
const MaxIDLen = 64

// ErrInvalidID is wrapped by every error about an id outside [A-Za-z0-9_-]{1,64}.
var ErrInvalidID = errors.New("invalid id")

type (
	// Agent is the id of an agent.
	Agent string
	// Session is the id of one conversation of an agent. Events are ordered per session.
	Session string
	// Writer is the id of the client that stored a cause. A client's credentials allow only
	// its own name.
	Writer string
	// Instance is the id of one running process: new at each start.
	Instance string
	// Identity is the name of a service, a plugin or a listener on the bus. Its processes share the
	// name.
	Identity string
	// Plugin is the name of a plugin. Its replicas share the name.
	Plugin string
)

// Valid reports whether the bytes of s form an id.
func Valid[S ~string | ~[]byte](s S) bool {
	if len(s) == 0 || len(s) > MaxIDLen {
		return false
	}
	for i := 0; i < len(s); i++ {
		if !idByte(s[i]) {
			return false
		}
	}
	return true
}

// Parse checks s and converts it to the given type of id, e.g. Parse[Session](s). The error
// names the kind of id and wraps [ErrInvalidID].
func Parse[T Agent | Session | Writer | Instance | Identity | Plugin](s string) (T, error) {
	if !Valid(s) {
		var zero T
		return zero, fmt.Errorf("%w: %s %q: want 1 to %d characters of A-Z a-z 0-9 _ -",
			ErrInvalidID, kindOf(zero), clip(s), MaxIDLen)
	}
	return T(s), nil
}

func kindOf(v any) string {
	switch v.(type) {
	case Agent:
		return "agent"
	case Session:
		return "session"
	case Writer:
		return "writer"
	case Instance:
		return "instance"
	case Identity:
		return "identity"
	default:
		return "plugin"
	}
}

func clip(s string) string {
	if len(s) > MaxIDLen+16 {
		return strings.ToValidUTF8(s[:MaxIDLen+16], "") + "…"
	}
	return s
}

func idByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-'
}
