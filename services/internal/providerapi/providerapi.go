// Package providerapi defines the request that each provider process answers on
// service.provider.<instance>: which providers it has, and how they are; and those that any
// process answers on service.embedder.<verb>, service.transcriber.<verb> and service.speaker.<verb>. The schemas are in schemas/service/provider.
package providerapi

import "skandha.dev/pkg/subject"

// ServiceName is the provider's name on the bus: in service.provider.<instance>, and as the
// responder of its answers.
const ServiceName = "provider"

// Report is what one process says of its providers.
type Report struct {
	Instance  subject.Instance `json:"instance"`
	Providers []Provider       `json:"providers"`          // in order of preference, those of plugins last
	Embedder  *Embedder        `json:"embedder,omitempty"` // absent: none is configured
	Budget    *Budget          `json:"budget,omitempty"`

	Transcriber *SpeechModel `json:"transcriber,omitempty"` // absent: none is configured
	Speaker     *SpeechModel `json:"speaker,omitempty"`     // likewise
}

// Provider is one provider as it is now.
type Provider struct {
	Name   string         `json:"name"`
	Model  string         `json:"model"` // its default
	Note   string         `json:"note,omitempty"`
	Plugin subject.Plugin `json:"plugin,omitempty"` // that offers it
	// Reachable says whether its API answered just now; absent if it cannot be asked without
	// a question.
	Reachable *bool    `json:"reachable,omitempty"`
	Error     string   `json:"error,omitempty"`  // why it is not reachable
	Models    []string `json:"models,omitempty"` // that the API lists, at most [MaxModels]
	Breaker   *Breaker `json:"breaker,omitempty"`
	Price     *Price   `json:"price,omitempty"` // of its default model; absent: unknown
}

// MaxModels is the maximum length of a list of models.
const MaxModels = 200

// Breaker is the state of a provider's circuit breaker.
type Breaker struct {
	State     BreakerState `json:"state"`
	Reason    string       `json:"reason,omitempty"`      // of the last failure, while it is not closed
	RetryInMS int64        `json:"retry_in_ms,omitempty"` // until an open one tries again
}

// BreakerState is whether a breaker lets requests pass.
type BreakerState string

// The states of a breaker.
const (
	Closed   BreakerState = "closed"    // requests pass
	Open     BreakerState = "open"      // requests are refused
	HalfOpen BreakerState = "half_open" // one request tries
)

// Price is in US dollars per million tokens.
type Price struct {
	Input       float64 `json:"input"`
	CachedInput float64 `json:"cached_input"`
	CacheWrite  float64 `json:"cache_write"`
	Output      float64 `json:"output"`
}

// Budget is what all provider processes may spend together, in millionths of a US dollar.
type Budget struct {
	LimitMicroUSD int64  `json:"limit_micro_usd"`
	SpentMicroUSD *int64 `json:"spent_micro_usd,omitempty"` // in this period; absent: unknown now
	Per           string `json:"per"`                       // day, month or ever
}
