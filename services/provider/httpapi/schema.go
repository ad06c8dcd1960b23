package httpapi

import (
	"errors"
	"regexp"
	"strings"
	"sync"

	contract "skandha.dev/pkg/provider"
)

// InWords returns a request whose system prompt asks for the schema of the answer, for an API
// that cannot enforce it.
func InWords(req contract.Request) contract.Request {
	if len(req.Schema) > 0 {
		ask := "Your final answer must be JSON that matches this JSON Schema, and nothing else:\n" + string(req.Schema)
		req.System, req.Schema = strings.TrimPrefix(req.System+"\n\n"+ask, "\n\n"), nil
	}
	return req
}

// schemaFields are the names by which APIs refuse a schema of the answer.
var schemaFields = regexp.MustCompile(
	`(?i)response_?format|json_?schema|output_?(format|config)|structured.?output|text\.format|` +
		`response.?(schema|mime.?type)|json.?mode`)

func refusesSchema(req contract.Request, err error) bool {
	var e *contract.Error
	return len(req.Schema) > 0 && errors.As(err, &e) && e.Code == contract.ErrBadRequest &&
		schemaFields.MatchString(e.Message)
}

// Schemas remembers the models at which an API refuses a schema of the answer. The zero value
// is ready to use.
type Schemas struct{ refused sync.Map }

// Ask asks a model. If the API refuses the request because of its schema, the model is asked in
// words, from then on at once.
func (s *Schemas) Ask(
	model string, req contract.Request, ask func(contract.Request) (contract.Response, error),
) (contract.Response, error) {
	if _, refused := s.refused.Load(model); refused {
		return ask(InWords(req))
	}
	resp, err := ask(req)
	if refusesSchema(req, err) {
		s.refused.Store(model, true)
		return ask(InWords(req))
	}
	return resp, err
}
