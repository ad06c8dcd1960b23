package request

import (
	"errors"
	"io"
	"mime"
	"net/http"

	"skandha.dev/services/uibridge/contract"
)

// Body reads the JSON that was posted, of at most so many bytes; it may be empty. With
// an error may come an HTTP status of its own, for [Refuse].
func Body(w http.ResponseWriter, r *http.Request, limit int64) (body []byte, status int, err error) {
	body, err = io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return nil, 0, &contract.Error{Code: contract.CodeTooLarge, Field: "body", Message: "it is larger than a request may be"}
	case err != nil:
		return nil, 0, contract.Invalid("body", "it did not arrive whole")
	case len(body) == 0:
		return nil, 0, nil
	}
	// A form of another page cannot send this type.
	if t, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || t != "application/json" {
		return nil, http.StatusUnsupportedMediaType, contract.Invalid("Content-Type", "want application/json")
	}
	return body, 0, nil
}
