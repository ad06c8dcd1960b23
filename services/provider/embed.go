package provider

import (
	"context"
	"fmt"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"skandha.dev/pkg/bus"
	contract "skandha.dev/pkg/provider"
	"skandha.dev/pkg/strictjson"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/embed"
	"skandha.dev/services/internal/providerapi"
	"skandha.dev/services/provider/adapter"
	"skandha.dev/services/provider/embedding"
	"skandha.dev/services/provider/retry"
)

const (
	embedSlots = 8               // requests to the API at a time
	embedDrain = 5 * time.Second // for requests in progress, on shutdown
	embedWait  = 2 * time.Minute // for one request, if the caller gives more time
)

// errNoEmbedder is the answer of a process that has none.
var errNoEmbedder = bus.Errorf(bus.CodeNotFound, "no embedder is configured: set providers.embedder in the configuration "+
	"file, or SKANDHA_EMBEDDER")

// responds answers requests with a verb; any process with the queue group does.
func (s *service) responds(
	verb string, f func(*bus.Request) (any, error), opts ...bus.RespondOption,
) (*bus.Responder, error) {
	return s.bus.Respond(subject.Service(providerapi.EmbedderName, verb), providerapi.EmbedderName,
		providerapi.EmbedderName, func(q *bus.Request) { coreapi.Answer(q, f) }, opts...)
}

// embeds answers requests for embeddings, or for their absence.
func (s *service) embeds() (leave func(), err error) {
	if s.embedder == nil {
		absent, err := s.responds(providerapi.VerbAbsent, func(*bus.Request) (any, error) { return nil, errNoEmbedder })
		if err != nil {
			return nil, err
		}
		return absent.Stop, nil
	}
	embeds, err := s.responds(providerapi.VerbEmbed, func(q *bus.Request) (any, error) {
		return s.embed(q.Context(), q.Data)
	}, bus.Concurrency(embedSlots))
	if err != nil {
		return nil, err
	}
	status, err := s.responds(providerapi.VerbStatus, func(*bus.Request) (any, error) { return s.embedding(), nil })
	if err != nil {
		embeds.Stop()
		return nil, err
	}
	return func() {
		status.Stop()
		ctx, cancel := context.WithTimeout(context.Background(), embedDrain)
		defer cancel()
		if err := embeds.Drain(ctx); err != nil {
			s.log.Warn("requests for embeddings were abandoned", "error", err)
		}
	}, nil
}

// embed answers one request.
func (s *service) embed(ctx context.Context, body []byte) (any, error) {
	var q providerapi.EmbedRequest
	if err := strictjson.Unmarshal(body, &q); err != nil {
		return nil, bus.Errorf(bus.CodeInvalidArgument, "the request for embeddings: %v", err)
	}
	if err := checkTexts(q.Texts); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, embedWait)
	defer cancel()
	began, info := time.Now(), s.embedder.Info()
	answer, failure := s.embedTexts(ctx, info, q.Texts)
	s.embedded.add(answer.Usage)
	log := s.log.With("model", modelName(info), "texts", len(q.Texts), "took", time.Since(began))
	if failure != nil {
		log.Warn("no embeddings were computed", "code", string(failure.Code), "reason", failure.Message)
		return nil, wireError(failure)
	}
	log.Debug("embeddings were computed", "input_tokens", answer.Usage.InputTokens)
	out := providerapi.EmbedAnswer{
		Model: modelName(info), Dimension: len(answer.Vectors[0]), Vectors: make([][]byte, len(answer.Vectors)),
		Usage: answer.Usage,
	}
	for i, v := range answer.Vectors {
		out.Vectors[i] = embed.Encode(v)
	}
	return out, nil
}

func modelName(i contract.Info) string { return i.Name + "/" + i.Model }

func checkTexts(texts []string) error {
	if len(texts) == 0 || len(texts) > providerapi.MaxTexts {
		return bus.Errorf(bus.CodeInvalidArgument, "texts has %d entries, want 1 to %d", len(texts), providerapi.MaxTexts)
	}
	for i, t := range texts {
		if strings.TrimSpace(t) == "" || len(t) > providerapi.MaxTextBytes {
			return bus.Errorf(bus.CodeInvalidArgument, "texts[%d] is empty or has more than %d bytes: %d", i,
				providerapi.MaxTextBytes, len(t))
		}
	}
	return nil
}

// embedTexts asks the API. What it may cost is held back before. With a failure it returns
// what it cost all the same.
func (s *service) embedTexts(
	ctx context.Context, info contract.Info, texts []string,
) (answer embedding.Answer, failure *contract.Error) {
	held, failure := s.holdTexts(ctx, info, texts)
	if failure != nil {
		return answer, failure
	}
	defer func() { // a panic is the failure of this request, and its cost is settled
		if v := recover(); v != nil {
			s.log.Error("the embedder panicked", "panic", v, "stack", string(debug.Stack()))
			failure = adapter.Errorf(contract.ErrInternal, "the embedder panicked")
			held.failed(failure)
			answer.Usage = held.spent
		}
	}()
	ctx = adapter.WithBegan(retry.WithGate(ctx, held.again(ctx)), &held.begun)
	answer, err := s.embedder.Embed(ctx, texts)
	if err != nil {
		failure = adapter.Failure(err)
		held.failed(failure)
		return embedding.Answer{Usage: held.spent}, failure
	}
	held.paid(&answer.Usage)
	return answer, nil
}

// wireError returns a failure with the code of the bus.
func wireError(e *contract.Error) *bus.Error {
	code := bus.CodeInternal
	switch e.Code {
	case contract.ErrAuth, contract.ErrOverBudget:
		code = bus.CodeDenied
	case contract.ErrRateLimited:
		code = bus.CodeOverloaded
	case contract.ErrUnavailable:
		code = bus.CodeUnavailable
	case contract.ErrTimeout:
		code = bus.CodeTimeout
	case contract.ErrBadRequest:
		code = bus.CodeInvalidArgument
	case contract.ErrTooLong:
		code = bus.CodeTooLarge
	case contract.ErrGarbage, contract.ErrInternal:
	}
	return &bus.Error{Code: code, Message: fmt.Sprintf("%s: %s", e.Code, e.Message), Retryable: e.Retryable}
}

// embedding describes the embedder without asking its API.
func (s *service) embedding() providerapi.Embedder {
	info := s.embedder.Info()
	return providerapi.Embedder{
		Model: modelName(info), Note: info.Note, Breaker: s.embedder.Breaker(), Price: s.described(info, true, forTexts).Price,
		Usage: new(s.embedded.total()),
	}
}

// reached adds whether the embedder's API answers.
func reached(ctx context.Context, c adapter.Checker, e *providerapi.Embedder) {
	_, err := c.Models(ctx)
	e.Reachable = new(err == nil)
	if err != nil {
		e.Error = adapter.Failure(err).Message
	}
}

// tally adds up usages.
type tally struct {
	mu  sync.Mutex
	sum contract.Usage
}

func (t *tally) add(u contract.Usage) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sum = t.sum.Add(u)
}

func (t *tally) total() contract.Usage {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.sum
}
