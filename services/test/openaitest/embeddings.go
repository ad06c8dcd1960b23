package openaitest

import (
	"fmt"
	"net/http"
	"slices"

	"skandha.dev/services/test/embedtest"
)

// maxInputs is how many texts the real API accepts at once.
const maxInputs = 2048

// embeddingsRequest is a request for embeddings as received.
type embeddingsRequest struct {
	Model          string   `json:"model"`
	Input          []string `json:"input"`
	EncodingFormat string   `json:"encoding_format"`
	Dimensions     int      `json:"dimensions"`
	User           string   `json:"user"`
}

// check is what the real API would refuse, in words; empty if nothing.
func (r *embeddingsRequest) check() string {
	switch {
	case r.Model != embedtest.Name:
		return fmt.Sprintf("the model %q does not exist", r.Model)
	case len(r.Input) == 0 || len(r.Input) > maxInputs || slices.Contains(r.Input, ""):
		return "'$.input' is invalid"
	}
	return ""
}

func (s *Server) embeddings(w http.ResponseWriter, r *http.Request) {
	if s.Embedder.Serve(w, r) {
		return
	}
	var req embeddingsRequest
	if err := decode(r, &req); refused(w, r, err, req.check) {
		return
	}
	data := make([]map[string]any, len(req.Input))
	for i, v := range s.Embedder.Embed(req.Input) {
		// The last comes first: clients are to go by the index.
		data[len(data)-1-i] = map[string]any{"object": "embedding", "index": i, "embedding": v}
	}
	tokens := embedtest.Tokens(req.Input)
	embedtest.JSON(w, http.StatusOK, map[string]any{
		"object": "list", "data": data, "model": req.Model,
		"usage": map[string]any{"prompt_tokens": tokens, "total_tokens": tokens},
	})
}
