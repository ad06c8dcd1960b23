package chroma

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"skandha.dev/pkg/telemetry"
	index "skandha.dev/services/internal/memory"
)

// Config configures the server.
type Config struct {
	// URL is chroma+http://host:port or chroma+https://…, with a path if the server is
	// behind one. A password in it is sent as X-Chroma-Token. Query parameters are
	// tenant=…, database=… and prefix=….
	URL string

	Timeout time.Duration // of one request; default 30 s
}

const (
	scheme          = "chroma+"
	defaultTimeout  = 30 * time.Second
	defaultTenant   = "default_tenant"
	defaultDatabase = "default_database"
	defaultPrefix   = "skandha-memory."
	maxAnswer       = 1 << 30 // bytes
)

// client speaks to the server. It knows collections by name until the server does not.
type client struct {
	http   http.Client
	base   string // of the collections
	root   string // of the API
	where  string // for messages: the address, without credentials
	prefix string
	token  string

	mu    sync.Mutex
	known map[string]collection
}

func newClient(cfg Config) (*client, error) {
	u, err := url.Parse(strings.TrimPrefix(cfg.URL, scheme))
	if err != nil {
		if wrapped, ok := errors.AsType[*url.Error](err); ok {
			err = wrapped.Err // without the URL
		}
		return nil, fmt.Errorf("%w: chroma URL: %w", index.ErrInvalid, err)
	}
	if !strings.HasPrefix(cfg.URL, scheme) || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.Fragment != "" {
		return nil, fmt.Errorf("%w: chroma URL: want chroma+http://host:port or chroma+https://host:port", index.ErrInvalid)
	}
	parameters := map[string]string{"tenant": defaultTenant, "database": defaultDatabase, "prefix": defaultPrefix}
	for name, values := range u.Query() {
		if _, is := parameters[name]; !is || values[0] == "" {
			return nil, fmt.Errorf("%w: chroma URL: parameter %.40q, want tenant, database or prefix with a value",
				index.ErrInvalid, name)
		}
		parameters[name] = values[0]
	}
	c := &client{
		http: http.Client{Timeout: cfg.Timeout}, where: u.Host, prefix: parameters["prefix"], known: map[string]collection{},
	}
	if c.http.Timeout == 0 {
		c.http.Timeout = defaultTimeout
	}
	c.token, _ = u.User.Password()
	u.User, u.RawQuery = nil, ""
	c.root = u.JoinPath("api", "v2").String()
	c.base = u.JoinPath("api", "v2", "tenants", parameters["tenant"], "databases", parameters["database"], "collections").String()
	return c, nil
}

// answerError is the server's refusal.
type answerError struct {
	status int
	text   string
}

func (e *answerError) Error() string { return fmt.Sprintf("status %d: %s", e.status, e.text) }

// missing reports whether the server says that there is no such thing.
func missing(err error) bool {
	e, is := errors.AsType[*answerError](err)
	return is && e.status == http.StatusNotFound
}

// call sends a request with a JSON body, and decodes the answer into out.
func (c *client) call(ctx context.Context, method, address string, body, out any) error {
	var content io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return err
		}
		content = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, address, content)
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	if c.token != "" {
		req.Header.Set("X-Chroma-Token", c.token)
	}
	res, err := c.http.Do(req)
	if err != nil {
		if wrapped, ok := errors.AsType[*url.Error](err); ok {
			err = wrapped.Err
		}
		if text := c.clean(err.Error()); text != err.Error() { // such as of a proxy
			return errors.New(text)
		}
		return err
	}
	defer func() { _ = res.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return err
	}
	if res.StatusCode >= http.StatusMultipleChoices {
		return &answerError{res.StatusCode, fmt.Sprintf("%.300s", c.clean(string(bytes.TrimSpace(answer))))}
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(answer, out); err != nil {
		return fmt.Errorf("reading the answer: %w", err)
	}
	return nil
}

// clean removes the token, which a server may repeat, and the credentials of URLs.
func (c *client) clean(s string) string {
	if c.token != "" {
		s = strings.ReplaceAll(s, c.token, "[token]")
	}
	return telemetry.Redact(s)
}

// collection is what the server says of one.
type collection struct {
	ID        string `json:"id"`
	Name      string `json:"name"`
	Dimension int    `json:"dimension"` // 0 before the first record
}

// find returns the collection of that name; the zero one if there is none.
func (c *client) find(ctx context.Context, name string) (found collection, err error) {
	c.mu.Lock()
	found = c.known[name]
	c.mu.Unlock()
	if found.Dimension > 0 {
		return found, nil
	}
	err = c.call(ctx, http.MethodGet, c.base+"/"+url.PathEscape(name), nil, &found)
	if missing(err) {
		return collection{}, nil
	}
	if err == nil {
		c.remember(found)
	}
	return found, err
}

// make returns the collection of that name, which it creates.
func (c *client) make(ctx context.Context, name, space string) (collection, error) {
	found, err := c.find(ctx, name)
	if err != nil || found.ID != "" {
		return found, err
	}
	err = c.call(ctx, http.MethodPost, c.base, map[string]any{
		"name": name, "get_or_create": true, "configuration": map[string]any{"hnsw": map[string]any{"space": space}},
	}, &found)
	if err == nil {
		c.remember(found)
	}
	return found, err
}

func (c *client) remember(found collection) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known[found.Name] = found
}

// forget drops what is known of collections.
func (c *client) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.known)
}

// list returns all collections of the database.
func (c *client) list(ctx context.Context) (all []collection, err error) {
	const page = 1000
	for {
		var some []collection
		address := fmt.Sprintf("%s?limit=%d&offset=%d", c.base, page, len(all))
		if err := c.call(ctx, http.MethodGet, address, nil, &some); err != nil {
			return nil, err
		}
		if all = append(all, some...); len(some) < page {
			return all, nil
		}
	}
}

// do posts to a collection.
func (c *client) do(ctx context.Context, in collection, verb string, body map[string]any, out any) error {
	return c.call(ctx, http.MethodPost, c.base+"/"+url.PathEscape(in.ID)+"/"+verb, body, out)
}

// metadata is what a record holds beside its document and embedding. Every record of a
// collection has all of it.
type metadata struct {
	Agent    string `json:"agent"`
	Key      string `json:"key"` // of the memory, as of keyOf
	Revision uint64 `json:"revision"`
	Kind     string `json:"kind"`
	Removed  bool   `json:"removed"`
	Vectors  string `json:"vectors"` // id of the collection with its vector; "" if there is none
	Model    string `json:"model"`
	Data     string `json:"data"` // the memory as JSON
}

// records is an answer of get.
type records struct {
	IDs        []string    `json:"ids"`
	Documents  []string    `json:"documents"`
	Metadatas  []metadata  `json:"metadatas"`
	Embeddings [][]float32 `json:"embeddings"`
}

// where joins conditions; none is no condition.
func where(conditions ...map[string]any) map[string]any {
	switch len(conditions) {
	case 0:
		return nil
	case 1:
		return conditions[0]
	}
	return map[string]any{"$and": conditions}
}

func is(field string, value any) map[string]any { return map[string]any{field: value} }

func in[T any](field string, values []T) map[string]any {
	return map[string]any{field: map[string]any{"$in": values}}
}
