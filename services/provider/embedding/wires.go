package embedding

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// wire is what differs between the APIs.
type wire struct {
	base string // default base URL
	env  string // the variable that the key belongs into
	hint string // how base URLs usually end
	list string // path of the list of models, below the base URL

	path    func(model string) string // of the request, below the base URL
	header  func(Config) http.Header
	request func(model string, texts []string) any
	read    func(body []byte) (vectors [][]float32, tokens int64, err error)
}

var wires = map[Wire]wire{
	OpenAI: {
		base: "https://api.openai.com/v1", env: "OPENAI_API_KEY", hint: ", usually /v1", list: "/models",
		path: func(string) string { return "/embeddings" }, header: bearer, request: listed, read: readOpenAI,
	},
	Gemini: {
		base: "https://generativelanguage.googleapis.com", env: "GEMINI_API_KEY", list: "/v1beta/models?pageSize=200",
		path: func(model string) string {
			return "/v1beta/models/" + url.PathEscape(geminiModel(model)) + ":batchEmbedContents"
		},
		header:  func(c Config) http.Header { return http.Header{"X-Goog-Api-Key": {string(c.APIKey)}} },
		request: batch, read: readGemini,
	},
	Ollama: {
		base: "http://127.0.0.1:11434", env: "OLLAMA_API_KEY", list: "/api/tags",
		path: func(string) string { return "/api/embed" }, header: bearer, request: listed, read: readOllama,
	},
}

func bearer(c Config) http.Header {
	h := http.Header{}
	for name, value := range map[string]string{"OpenAI-Organization": c.Organization, "OpenAI-Project": c.Project} {
		if value != "" {
			h.Set(name, value)
		}
	}
	if c.APIKey != "" {
		h.Set("Authorization", "Bearer "+string(c.APIKey))
	}
	return h
}

type listRequest struct {
	Model string   `json:"model"`
	Input []string `json:"input"`
}

func listed(model string, texts []string) any { return listRequest{model, texts} }

// readOpenAI puts the vectors in the order of their index. Without an index, they are in order.
func readOpenAI(body []byte) ([][]float32, int64, error) {
	var answer struct {
		Data []struct {
			Index     *int   `json:"index"`
			Embedding vector `json:"embedding"`
		} `json:"data"`
		Usage struct {
			Tokens int64 `json:"prompt_tokens"`
		} `json:"usage"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return nil, 0, err
	}
	out := make([][]float32, len(answer.Data))
	for i, d := range answer.Data {
		if d.Index != nil {
			i = *d.Index
		}
		if i < 0 || i >= len(out) || out[i] != nil {
			return nil, 0, fmt.Errorf("the index %d is out of range, or there twice", i)
		}
		out[i] = d.Embedding
	}
	return out, answer.Usage.Tokens, nil
}

func geminiModel(model string) string { return strings.TrimPrefix(model, "models/") }

type content struct {
	Parts []part `json:"parts"`
}

type part struct {
	Text string `json:"text"`
}

type batchRequest struct {
	Requests []embedRequest `json:"requests"`
}

type embedRequest struct {
	Model   string  `json:"model"`
	Content content `json:"content"`
}

func batch(model string, texts []string) any {
	out := batchRequest{make([]embedRequest, len(texts))}
	for i, t := range texts {
		out.Requests[i] = embedRequest{"models/" + geminiModel(model), content{[]part{{t}}}}
	}
	return out
}

// readGemini reports no tokens: the API does not count them.
func readGemini(body []byte) ([][]float32, int64, error) {
	var answer struct {
		Embeddings []struct {
			Values vector `json:"values"`
		} `json:"embeddings"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return nil, 0, err
	}
	out := make([][]float32, len(answer.Embeddings))
	for i, e := range answer.Embeddings {
		out[i] = e.Values
	}
	return out, 0, nil
}

func readOllama(body []byte) ([][]float32, int64, error) {
	var answer struct {
		Embeddings []vector `json:"embeddings"`
		Tokens     int64    `json:"prompt_eval_count"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return nil, 0, err
	}
	out := make([][]float32, len(answer.Embeddings))
	for i, v := range answer.Embeddings {
		out[i] = v
	}
	return out, answer.Tokens, nil
}
