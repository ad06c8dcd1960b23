package uibridge

import (
	"context"
	"encoding/json"
	"errors"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/buildinfo"
)

// ServiceName is the bridge's name on the bus: part of service.uibridge.<verb>, and the
// responder named in its answers.
const ServiceName = "uibridge"

// VerbStatus asks any replica for its status; the answer is a [Status].
const VerbStatus = "status"

// Status reports where a bridge serves its page, and its load.
type Status struct {
	Instance    subject.Instance `json:"instance"`
	Version     string           `json:"version"`
	Page        string           `json:"page"`        // the URL that browsers use
	Connections int64            `json:"connections"` // open requests, streams and WebSockets included
	Sessions    int64            `json:"sessions"`    // sessions that clients follow
}

// Status returns the bridge's current status.
func (s *Service) Status() Status {
	n := s.Counters()
	return Status{
		s.deps.Bus.Instance(), buildinfo.String(), s.URL() + "/", n["uibridge_connections"], n["uibridge_sessions"],
	}
}

// answer answers requests over the bus until stop is called.
func (s *Service) answer() (stop func(), err error) {
	verbs := map[string]func(context.Context) (any, error){
		VerbLink: func(ctx context.Context) (any, error) {
			l, err := s.Link(ctx)
			if err == nil {
				s.deps.Log.Info("one-time link created for a client on the bus", "expires", l.Expires)
			}
			return l, err
		},
		VerbStatus: func(context.Context) (any, error) { return s.Status(), nil },
	}
	var all []*bus.Responder
	stop = func() {
		for _, r := range all {
			r.Stop()
		}
	}
	for verb, answer := range verbs {
		r, err := s.deps.Bus.Respond(subject.Service(ServiceName, verb), ServiceName, ServiceName, func(q *bus.Request) {
			if err := reply(q, answer); err != nil {
				s.deps.Log.Warn("answering a request over the bus failed", "verb", verb, "error", err)
			}
		})
		if err != nil {
			stop()
			return nil, err
		}
		all = append(all, r)
	}
	return stop, nil
}

// answerLooks also answers requests for the pictures of cameras that people share, until stop is called.
func (s *Service) answerLooks(others func()) (stop func(), err error) {
	looks, err := s.transports.cameras.Answer()
	if err != nil {
		others()
		return nil, err
	}
	return func() {
		looks()
		others()
	}, nil
}

func reply(q *bus.Request, answer func(context.Context) (any, error)) error {
	v, err := answer(q.Context())
	if err != nil {
		return errors.Join(err, q.ReplyError(err))
	}
	b, err := json.Marshal(v)
	if err != nil {
		return errors.Join(err, q.ReplyError(err))
	}
	return q.Reply(b)
}
