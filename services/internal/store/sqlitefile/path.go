package sqlitefile

import (
	"fmt"
	"net/url"

	"skandha.dev/services/internal/store"
)

// PathOf returns the path in a URL of the form sqlite:///absolute/path. The error is
// store.ErrInvalid and contains no password.
func PathOf(raw string) (string, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return "", fmt.Errorf("%w: not a sqlite URL", store.ErrInvalid)
	}
	if u.Host != "" || u.User != nil || u.Path == "" || u.RawQuery != "" || u.Fragment != "" {
		return "", fmt.Errorf("%w: %q: want sqlite:///absolute/path, with ? and # escaped and nothing after",
			store.ErrInvalid, u.Redacted())
	}
	return u.Path, nil
}
