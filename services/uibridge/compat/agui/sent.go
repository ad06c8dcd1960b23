package agui

import (
	lru "github.com/hashicorp/golang-lru/v2"

	"skandha.dev/pkg/subject"
)

// sentRequests remembers the confirmation requests recently sent to principals, and the
// position of runs that they interrupted.
type sentRequests = lru.Cache[sentKey, sentRequest]

type sentKey struct {
	principal string
	ref       subject.Ref
	id        string
}

type sentRequest struct {
	hash  string
	after string           // "" unless the run was interrupted
	calls map[string]*call // likewise
}

// maxSent limits the requests that are remembered.
const maxSent = 4096

func newSentRequests() *sentRequests {
	c, _ := lru.New[sentKey, sentRequest](maxSent) // fails only if the size is not positive
	return c
}
