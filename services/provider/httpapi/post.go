package httpapi

import (
	"bytes"
	"context"
	"io"
	"mime"
	"net/http"
	"time"

	contract "skandha.dev/pkg/provider"
	"skandha.dev/services/provider/adapter"
)

// maxAnswerBytes bounds an answer that is read as a whole.
const maxAnswerBytes = 8 << 20

// Post sends a JSON body and returns that of the answer. It is not retried. The error is a
// *[contract.Error], or that of ctx.
func (a API) Post(
	ctx context.Context, c *http.Client, address string, header http.Header, body []byte,
) ([]byte, error) {
	ctx, w := Watch(ctx, a.stall)
	defer w.Stop()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(body))
	if err != nil {
		return nil, adapter.Errorf(contract.ErrInternal, "the address of the API is not a URL")
	}
	req.Header = header.Clone()
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.Do(req)
	if err != nil {
		return nil, a.Explain(ctx, err)
	}
	w.alive()
	if resp.StatusCode >= http.StatusMultipleChoices {
		return nil, a.Status(resp.StatusCode, resp.Header, ParseFault(readSome(resp)), time.Now())
	}
	defer func() { _ = resp.Body.Close() }()
	adapter.Began(ctx)
	if media, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type")); err == nil && media == "text/html" {
		return nil, adapter.Errorf(contract.ErrGarbage,
			"the server answered with %s instead of application/json: does base_url end where the API begins%s?", media,
			a.Hint)
	}
	answer, err := io.ReadAll(&watchedBody{ReadCloser: resp.Body, watchdog: w, left: maxAnswerBytes + 1})
	switch {
	case len(answer) > maxAnswerBytes:
		return nil, adapter.Errorf(contract.ErrTooLong, "the answer is longer than %d bytes", maxAnswerBytes)
	case err != nil:
		return nil, a.Explain(ctx, err)
	}
	return answer, nil
}
