package deps

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/url"
)

// Origin is what else makes a package set what it is, beside its requirements.
type Origin struct {
	Platform string   // driver.Report.Platform
	Index    string   // URL of the index; empty: pip's own. Credentials in it do not count.
	Options  []string // whatever changes what is installed for the same requirements
}

// Hash is the id of the package set: 64 hex digits that depend on the canonical
// requirements, versions included, and on where they come from.
func Hash(reqs Requirements, from Origin) string {
	if u, err := url.Parse(from.Index); err == nil {
		u.User = nil
		from.Index = u.String()
	}
	sorted := Merge(nil, reqs)
	// Encoding strings cannot fail, and quotes them, so that no two sets are spelled
	// the same.
	spelled, _ := json.Marshal([]any{sorted.Strings(), from.Platform, from.Index, from.Options})
	sum := sha256.Sum256(spelled)
	return hex.EncodeToString(sum[:])
}
