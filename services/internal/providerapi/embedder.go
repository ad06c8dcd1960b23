package providerapi

import "skandha.dev/pkg/provider"

// EmbedderName is the embedder's name on the bus: in service.embedder.<verb>, and as the
// responder of its answers.
const EmbedderName = "embedder"

// The verbs that any provider process with an embedder answers, and the one that any process
// without answers, always with not_found. A request for the first ones so reaches a process that
// can answer it.
const (
	VerbEmbed  = "embed"  // EmbedRequest -> EmbedAnswer
	VerbStatus = "status" // -> Embedder, without asking its API
	VerbAbsent = "absent"
)

// The limits of an [EmbedRequest].
const (
	MaxTexts     = 32      // so that the answer of most models is sent without a claim
	MaxTextBytes = 8 << 10 // of each text: at most as many tokens as common models accept
)

// EmbedRequest asks for the embeddings of texts. The schema is
// schemas/service/provider/embed_request.json.
type EmbedRequest struct {
	Texts []string `json:"texts"` // at most [MaxTexts], none empty or longer than [MaxTextBytes]
}

// EmbedAnswer is the embeddings of texts. The schema is schemas/service/provider/embed.json.
type EmbedAnswer struct {
	Model     string         `json:"model"`     // <provider>/<model>
	Dimension int            `json:"dimension"` // numbers in each vector
	Vectors   [][]byte       `json:"vectors"`   // one per text: little-endian float32, of length 1
	Usage     provider.Usage `json:"usage"`
}

// Embedder is the model of embeddings as it is now. The schema is
// schemas/service/provider/embedder.json.
type Embedder struct {
	Model string `json:"model"` // <provider>/<model>
	Note  string `json:"note,omitempty"`
	// Reachable says whether its API answered just now; absent if it was not asked.
	Reachable *bool           `json:"reachable,omitempty"`
	Error     string          `json:"error,omitempty"` // why it is not reachable
	Breaker   Breaker         `json:"breaker"`
	Price     *Price          `json:"price,omitempty"` // absent: unknown
	Usage     *provider.Usage `json:"usage,omitempty"` // of this process since its start; absent: not for the client
}
