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

// Answer is an answer that was read as a whole.
type Answer struct {
	Body      []byte
	MediaType string // as declared; empty if it cannot be read
	Status    int    // of HTTP, also beside an error; 0 if there was no answer
}

// Post sends a JSON body and returns that of the answer. It is not retried. The error is a
// *[contract.Error], or that of ctx.
func (a API) Post(
	ctx context.Context, c *http.Client, address string, header http.Header, body []byte,
) ([]byte, error) {
	header = header.Clone()
	header.Set("Content-Type", "application/json")
	answer, err := a.Send(ctx, c, address, header, body, maxAnswerBytes)
	return answer.Body, err
}

// Send is like Post with any body, whose type is in the header, and a limit of the answer in bytes.
func (a API) Send(
	ctx context.Context, c *http.Client, address string, header http.Header, body []byte, limit int,
) (answer Answer, err error) {
	ctx, w := Watch(ctx, a.stall)
	defer w.Stop()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(body))
	if err != nil {
		return answer, adapter.Errorf(contract.ErrInternal, "the address of the API is not a URL")
	}
	req.Header = header
	resp, err := c.Do(req)
	if err != nil {
		return answer, a.Explain(ctx, err)
	}
	w.alive()
	answer.Status = resp.StatusCode
	if resp.StatusCode >= http.StatusMultipleChoices {
		return answer, a.Status(resp.StatusCode, resp.Header, ParseFault(readSome(resp)), time.Now())
	}
	defer func() { _ = resp.Body.Close() }()
	adapter.Began(ctx)
	answer.MediaType, _, _ = mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if answer.MediaType == "text/html" {
		return answer, adapter.Errorf(contract.ErrGarbage,
			"the server answered with a page (text/html): does base_url end where the API begins%s?", a.Hint)
	}
	answer.Body, err = io.ReadAll(&watchedBody{ReadCloser: resp.Body, watchdog: w, left: int64(limit) + 1})
	switch {
	case len(answer.Body) > limit:
		return Answer{}, adapter.Errorf(contract.ErrTooLong, "the answer is longer than %d bytes", limit)
	case err != nil:
		return Answer{}, a.Explain(ctx, err)
	}
	return answer, nil
}
