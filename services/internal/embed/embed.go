// Package embed turns texts into vectors, so that texts of like meaning can be found without
// shared words. [Client] asks the provider service, which alone holds the keys.
//
// # Subjects
//
// Produced: service.embedder.embed and service.embedder.status, which any provider process with an
// embedder answers, and service.embedder.absent, which any other one answers (package providerapi).
//
// # Guarantee
//
// The vectors of one answer are of one model, of length 1 and of one dimension. A text is sent
// once while its vector is in the cache. Texts of several callers share requests.
//
// # Failure
//
// Without an embedder the error is [ErrNone]; any other one means that it cannot be asked now.
// Either way the caller searches by words instead. When the configured model changes, the
// client follows within half a minute, and mixes no vectors.
package embed

import (
	"context"
	"errors"
)

// Embedder computes embeddings. It may be used by many goroutines at once.
type Embedder interface {
	// Embed returns one vector per text, in order, each of the same length. An error
	// means that no vector was computed.
	Embed(ctx context.Context, texts []string) (Vectors, error)
}

// Vectors is the embeddings of some texts by one model. Vectors of different models cannot
// be compared.
type Vectors struct {
	Model  string      // provider and model, e.g. "openai/text-embedding-3-small"
	Values [][]float32 // of length 1
}

// ErrNone means that no embedder is configured: searches are lexical.
var ErrNone = errors.New("no embedder is configured")
