// Package embed turns texts into vectors, so that texts of like meaning can be found without
// shared words.
package embed

import "context"

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
