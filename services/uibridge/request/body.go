package request

import (
	"errors"
	"io"
	"mime"
	"net/http"

	"skandha.dev/services/uibridge/contract"
)

// Body reads the posted JSON, up to limit bytes; it may be empty. An error may come with an
// HTTP status for [Refuse].
func Body(w http.ResponseWriter, r *http.Request, limit int64) (body []byte, status int, err error) {
	body, err = io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return nil, 0, &contract.Error{
			Code: contract.CodeTooLarge, Field: "body", Message: "larger than the limit for requests",
		}
	case err != nil:
		return nil, 0, contract.Invalid("body", "incomplete")
	case len(body) == 0:
		return nil, 0, nil
	}
	// An HTML form of another page cannot send this type.
	if t, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || t != "application/json" {
		return nil, http.StatusUnsupportedMediaType, contract.Invalid("Content-Type", "want application/json")
	}
	return body, 0, nil
}
