package deps

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/url"
)

// Origin is everything that determines a package set besides its requirements.
type Origin struct {
	Platform string   // driver.Report.Platform
	Index    string   // URL of the index; empty: pip's own. Credentials in it are ignored.
	Options  []string // all options that change what is installed for the same requirements
}

// Hash returns the id of the package set: 64 hex digits that depend on the canonical
// requirements, including versions, and on their origin.
func Hash(reqs Requirements, from Origin) string {
	if u, err := url.Parse(from.Index); err == nil {
		u.User = nil
		from.Index = u.String()
	}
	sorted := Merge(nil, reqs)
	// Encoding strings cannot fail, and quotes them, so that no two sets have the same
	// encoding.
	spelled, _ := json.Marshal([]any{sorted.Strings(), from.Platform, from.Index, from.Options})
	sum := sha256.Sum256(spelled)
	return hex.EncodeToString(sum[:])
}
