package geminitest

import (
	"fmt"
	"net/http"

	contract "skandha.dev/pkg/provider"
	"skandha.dev/services/test/embedtest"
)

// maxBatch is how many texts the real API accepts at once.
const maxBatch = 100

// batchRequest is a batchEmbedContents request as received.
type batchRequest struct {
	Requests []struct {
		Model   string `json:"model"`
		Content struct {
			Role  string `json:"role"`
			Parts []struct {
				Text string `json:"text"`
			} `json:"parts"`
		} `json:"content"`
		TaskType             string `json:"taskType"`
		Title                string `json:"title"`
		OutputDimensionality int    `json:"outputDimensionality"`
	} `json:"requests"`
}

// texts are the texts of the request, or what the real API would refuse.
func (r *batchRequest) texts() (out []string, why string) {
	if len(r.Requests) == 0 || len(r.Requests) > maxBatch {
		return nil, fmt.Sprintf("* BatchEmbedContentsRequest.requests: want 1 to %d requests in one batch", maxBatch)
	}
	for i, q := range r.Requests {
		switch {
		case q.Model != "models/"+embedtest.Name:
			return nil, fmt.Sprintf("* BatchEmbedContentsRequest.requests[%d].model: %q does not match the URL", i, q.Model)
		case len(q.Content.Parts) != 1 || q.Content.Parts[0].Text == "":
			return nil, fmt.Sprintf("* BatchEmbedContentsRequest.requests[%d].content: contents is empty", i)
		}
		out = append(out, q.Content.Parts[0].Text)
	}
	return out, ""
}

func (s *Server) embeddings(w http.ResponseWriter, r *http.Request) {
	if s.Embedder.Serve(w, r) {
		return
	}
	var req batchRequest
	err := embedtest.Decode(r, &req)
	switch {
	case r.Header.Get("X-Goog-Api-Key") != Key:
		refuseAs(w, &contract.Error{Code: contract.ErrAuth, Message: "API key not valid. Please pass a valid API key."})
		return
	case err != nil:
		Refuse(w, http.StatusBadRequest, "INVALID_ARGUMENT", "Invalid JSON payload received: "+err.Error(), "")
		return
	}
	texts, why := req.texts()
	if why != "" {
		Refuse(w, http.StatusBadRequest, "INVALID_ARGUMENT", why, "")
		return
	}
	out := make([]map[string]any, len(texts))
	for i, v := range s.Embedder.Embed(texts) {
		out[i] = map[string]any{"values": v}
	}
	embedtest.JSON(w, http.StatusOK, map[string]any{"embeddings": out})
}
