package httpapi

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"time"

	contract "skandha.dev/pkg/provider"
	"skandha.dev/services/provider/adapter"
)

// maxModels bounds a list of models, in bytes.
const maxModels = 4 << 20

// Models asks an API for its models. It reads the lists of OpenAI ({"data":[{"id":…}]}) and of
// Gemini ({"models":[{"name":"models/…"}]}).
func (a API) Models(ctx context.Context, c *http.Client, address string, header http.Header) ([]string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, adapter.Errorf(contract.ErrInternal, "the address of the models is not a URL")
	}
	req.Header = header
	resp, err := c.Do(req)
	if err != nil {
		return nil, a.Explain(ctx, err)
	}
	if resp.StatusCode >= http.StatusMultipleChoices {
		return nil, a.Status(resp.StatusCode, resp.Header, ParseFault(readSome(resp)), time.Now())
	}
	defer func() { _ = resp.Body.Close() }()
	var list struct {
		Data   []struct{ ID string }
		Models []struct{ Name string }
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxModels)).Decode(&list); err != nil {
		return nil, adapter.Errorf(contract.ErrGarbage, "the API's list of models cannot be read")
	}
	var out []string
	for _, m := range list.Data {
		out = append(out, m.ID)
	}
	for _, m := range list.Models {
		out = append(out, strings.TrimPrefix(m.Name, "models/"))
	}
	return out, nil
}
