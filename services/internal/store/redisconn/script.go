package redisconn

import (
	"errors"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Larger is the Lua function larger(a, b). It compares positive decimal numbers that a Lua
// number can't represent.
const Larger = `
local function larger(a, b)
	if #a ~= #b then return #a > #b end
	return a > b
end
`

// Damaged is the prefix of our scripts' errors about a value that is not a number.
const Damaged = "DAMAGED"

// Unreadable reports whether the server's error is about a key or a value of the wrong kind.
func Unreadable(err error) bool {
	if _, is := errors.AsType[redis.Error](err); !is {
		return false
	}
	// In a script, old servers put their own prefix before the command's error.
	for _, says := range []string{"WRONGTYPE", Damaged, "is not an integer", "is not a valid float", "would overflow"} {
		if strings.Contains(err.Error(), says) {
			return true
		}
	}
	return false
}
