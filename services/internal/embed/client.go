package embed

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/providerapi"
	"skandha.dev/services/internal/runes"
)

const (
	cached       = 2048             // vectors, 4 bytes per number each
	modelFor     = 30 * time.Second // how long the configured model is taken for granted
	modelChanges = 3                // tries of a call, while the model changes under it
)

// Client is the embedder of the provider service.
type Client struct {
	caller *bus.Caller
	cache  *lru.Cache[key, []float32]
	queue  queue

	mu        sync.Mutex
	model     string    // configured at the last answer; empty: none
	dimension int       // of its vectors; 0: unknown
	until     time.Time // when to ask for the model again
}

var _ Embedder = (*Client)(nil)

type sum [sha256.Size]byte

type key struct {
	model string
	text  sum
}

// NewClient returns a client. The caller stays open as long as it is used.
func NewClient(caller *bus.Caller) *Client {
	cache, err := lru.New[key, []float32](cached)
	if err != nil { // only for a size below 1
		panic(err)
	}
	c := &Client{caller: caller, cache: cache}
	c.queue.ask = c.ask
	return c
}

// Model returns what computes embeddings now, as <provider>/<model>, or [ErrNone]. It asks at
// most twice a minute.
func (c *Client) Model(ctx context.Context) (string, error) {
	c.mu.Lock()
	model, known := c.model, time.Now().Before(c.until)
	c.mu.Unlock()
	if !known {
		var now providerapi.Embedder
		err := c.request(ctx, providerapi.VerbStatus, nil, &now)
		if err != nil && !errors.Is(err, ErrNone) {
			return "", err
		}
		model = now.Model
		c.configured(model)
	}
	if model == "" {
		return "", ErrNone
	}
	return model, nil
}

// configured notes the model that is configured now.
func (c *Client) configured(model string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if model != c.model {
		c.model, c.dimension = model, 0
	}
	c.until = time.Now().Add(modelFor)
}

// Embed implements Embedder. A text may have any length: its vector is that of its first
// 8 KiB. A text of spaces alone is an error.
func (c *Client) Embed(ctx context.Context, texts []string) (Vectors, error) {
	cut := make([]string, len(texts))
	for i, t := range texts {
		cut[i], _ = runes.Split(strings.TrimSpace(strings.ToValidUTF8(t, "\uFFFD")), providerapi.MaxTextBytes)
		if cut[i] == "" {
			return Vectors{}, fmt.Errorf("computing embeddings: text %d of %d is empty", i+1, len(texts))
		}
	}
	for range modelChanges {
		model, err := c.Model(ctx)
		if err != nil {
			return Vectors{}, fmt.Errorf("computing embeddings: %w", err)
		}
		values, err := c.embed(ctx, model, cut)
		switch {
		case err == nil:
			return Vectors{model, values}, nil
		case !errors.Is(err, errOtherModel):
			return Vectors{}, fmt.Errorf("computing embeddings: %w", err)
		}
	}
	return Vectors{}, fmt.Errorf("computing embeddings: %w", errOtherModel)
}

var errOtherModel = errors.New("provider processes have different embedders; configure the same for all")

// embed returns the vectors of one model, or errOtherModel.
func (c *Client) embed(ctx context.Context, model string, texts []string) ([][]float32, error) {
	out := make([][]float32, len(texts))
	var missing []string
	at := map[sum][]int{} // where a missing text is
	for i, t := range texts {
		s := sum(sha256.Sum256([]byte(t)))
		if v, ok := c.cache.Get(key{model, s}); ok {
			out[i] = slices.Clone(v)
			continue
		}
		if at[s] = append(at[s], i); len(at[s]) == 1 {
			missing = append(missing, t)
		}
	}
	// One part at a time, so that a caller with many texts leaves room for others.
	for part := range slices.Chunk(missing, providerapi.MaxTexts) {
		found, err := c.queue.embed(ctx, part)
		if err != nil {
			return nil, err
		}
		for i, r := range found {
			if r.model != model {
				return nil, errOtherModel
			}
			for _, j := range at[sha256.Sum256([]byte(part[i]))] {
				out[j] = slices.Clone(r.vector)
			}
		}
	}
	return out, nil
}

// ask sends one request, and puts the vectors into the cache.
func (c *Client) ask(ctx context.Context, texts []string) ([]found, error) {
	var answer providerapi.EmbedAnswer
	if err := c.request(ctx, providerapi.VerbEmbed, providerapi.EmbedRequest{Texts: texts}, &answer); err != nil {
		return nil, err
	}
	out, err := c.read(answer, len(texts))
	if err != nil {
		return nil, fmt.Errorf("the answer of %s cannot be used: %w", answer.Model, err)
	}
	for i, f := range out {
		c.cache.Add(key{f.model, sha256.Sum256([]byte(texts[i]))}, f.vector)
	}
	return out, nil
}

// read checks an answer.
func (c *Client) read(a providerapi.EmbedAnswer, texts int) ([]found, error) {
	if a.Model == "" || len(a.Vectors) != texts {
		return nil, fmt.Errorf("it has %d vectors for %d texts", len(a.Vectors), texts)
	}
	out := make([]found, texts)
	for i, b := range a.Vectors {
		v, err := decode(b, a.Dimension)
		if err != nil {
			return nil, err
		}
		out[i] = found{a.Model, v}
	}
	c.configured(a.Model)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.model == a.Model && c.dimension != 0 && c.dimension != a.Dimension {
		return nil, fmt.Errorf("its dimension was %d and is %d: give the new model another name", c.dimension,
			a.Dimension)
	}
	c.dimension = a.Dimension
	return out, nil
}

// request asks any provider process that has an embedder.
func (c *Client) request(ctx context.Context, verb string, question, answer any) error {
	var body []byte
	var err error
	if question != nil {
		if body, err = json.Marshal(question); err != nil {
			return err
		}
	}
	reply, err := c.call(ctx, verb, body)
	if errors.Is(err, bus.ErrUnavailable) && c.absent(ctx, verb) {
		err = bus.ErrNotFound
	}
	switch {
	case errors.Is(err, bus.ErrNotFound):
		c.configured("")
		return ErrNone
	case err != nil:
		return err
	}
	return json.Unmarshal(reply, answer)
}

// absent reports whether provider processes are there, and none has an embedder. One that has,
// whose API is away, still answers for its status.
func (c *Client) absent(ctx context.Context, verb string) bool {
	if verb != providerapi.VerbStatus {
		if _, err := c.call(ctx, providerapi.VerbStatus, nil); err == nil {
			return false
		}
	}
	_, err := c.call(ctx, providerapi.VerbAbsent, nil)
	return errors.Is(err, bus.ErrNotFound)
}

func (c *Client) call(ctx context.Context, verb string, body []byte) ([]byte, error) {
	return c.caller.Request(ctx, subject.Service(providerapi.EmbedderName, verb), providerapi.EmbedderName, body)
}
