package guide

import "skandha.dev/pkg/subject"

// Request is the request to a guide plugin on guide.<plugin> for one of its guides. The reply
// is a [Guide], as JSON, or the error not_found.
type Request struct {
	Name  string        `json:"name"` // as in the plugin's manifest
	Agent subject.Agent `json:"agent"`
}
