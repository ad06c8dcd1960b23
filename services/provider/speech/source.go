package speech

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"strings"

	contract "skandha.dev/pkg/provider"
	"skandha.dev/services/internal/providerapi"
	"skandha.dev/services/provider/adapter"
	"skandha.dev/services/provider/httpapi"
	"skandha.dev/services/provider/retry"
)

// source is what transcribers and speakers have in common: an API or a program.
type source struct {
	section string // of the configuration
	cfg     Config
	client  *http.Client
	policy  *retry.Policy
	api     httpapi.API
}

func newSource(section string, cfg Config) (source, error) {
	if err := cfg.Validate(); err != nil {
		return source{}, err
	}
	cfg = cfg.WithDefaults()
	cfg.BaseURL = strings.TrimSuffix(cfg.BaseURL, "/")
	return source{
		section: section, cfg: cfg, client: httpapi.Client(cfg.HTTPClient), policy: retry.New(cfg.Retry),
		api: httpapi.NewAPI(cfg.BaseURL, cfg.Stall, cfg.APIKey, ", usually /v1"),
	}, nil
}

// Info describes the provider and its model.
func (s *source) Info() contract.Info {
	note := "at " + httpapi.Host(s.cfg.BaseURL)
	if s.program() {
		note = "on this machine"
	}
	return contract.Info{Name: s.cfg.Name, Model: s.cfg.Model, Note: note}
}

func (s *source) program() bool { return len(s.cfg.Command) > 0 }

// Breaker describes the circuit breaker. That of a program is always closed.
func (s *source) Breaker() providerapi.Breaker { return s.policy.Breaker() }

// Check reports why the API does not answer, or the program cannot be started.
func (s *source) Check(ctx context.Context) error {
	if s.program() {
		if _, err := exec.LookPath(s.cfg.Command[0]); err != nil {
			return adapter.Errorf(contract.ErrUnavailable, "the program %s cannot be started: %v", s.cfg.Command[0], errors.Unwrap(err))
		}
		return nil
	}
	_, err := s.api.Models(ctx, s.client, s.cfg.BaseURL+"/models", s.header(""))
	if e, ok := errors.AsType[*contract.Error](err); ok && (e.Code == contract.ErrBadRequest || e.Code == contract.ErrGarbage) {
		return nil // servers for speech alone have no list of models, and they did answer
	}
	return err
}

func (s *source) header(contentType string) http.Header {
	h := http.Header{}
	for name, value := range map[string]string{
		"Content-Type": contentType, "OpenAI-Organization": s.cfg.Organization, "OpenAI-Project": s.cfg.Project,
	} {
		if value != "" {
			h.Set(name, value)
		}
	}
	if s.cfg.APIKey != "" {
		h.Set("Authorization", "Bearer "+string(s.cfg.APIKey))
	}
	return h
}

// post asks the API, with the tries of package retry. What read says of an answer decides about
// another try.
func (s *source) post(
	ctx context.Context, path, contentType string, body []byte, limit int, read func(httpapi.Answer) error,
) error {
	_, err := s.policy.Do(ctx, func(ctx context.Context) (contract.Response, bool, error) {
		answer, err := s.api.Send(ctx, s.client, s.cfg.BaseURL+path, s.header(contentType), body, limit)
		if err == nil {
			err = read(answer)
		}
		return contract.Response{}, false, s.misconfigured(answer.Status, err)
	})
	return err
}

// misconfigured is the error of an answer that no other request gets either: the caller's request is
// not at fault, and an operator has to know what is.
func (s *source) misconfigured(status int, err error) error {
	e, ok := errors.AsType[*contract.Error](err)
	if !ok {
		return err
	}
	switch {
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
	case status == http.StatusNotFound || status == http.StatusMethodNotAllowed || status/100 == 3:
		e.Code = contract.ErrInternal
	default:
		return err
	}
	e.Message += "; check " + s.section + " in the configuration"
	return e
}

// garbage is the error of an answer that cannot be used: what the API says in it, or else why.
func (s *source) garbage(body []byte, format string, args ...any) error {
	if f := httpapi.ParseFault(body); f.Known() { // with status 200
		return s.api.InStream(f)
	}
	return adapter.Errorf(contract.ErrGarbage, "%s", s.api.Clean(fmt.Sprintf(format, args...)))
}

func (s *source) model() string { return s.cfg.Name + "/" + s.cfg.Model }
