package uibridge

import (
	"context"
	"encoding/json"
	"errors"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/buildinfo"
)

// ServiceName is the bridge's name on the bus: service.uibridge.<verb>, and the
// responder of its answers.
const ServiceName = "uibridge"

// VerbStatus asks any replica how it is; it answers with a [Status].
const VerbStatus = "status"

// Status says where a bridge serves its page, and to how many.
type Status struct {
	Instance    subject.Instance `json:"instance"`
	Version     string           `json:"version"`
	Page        string           `json:"page"`        // by which browsers reach it
	Connections int64            `json:"connections"` // requests that are open, streams and WebSockets included
	Sessions    int64            `json:"sessions"`    // that are watched
}

// Status is how the bridge is now.
func (s *Service) Status() Status {
	n := s.Counters()
	return Status{s.deps.Bus.Instance(), buildinfo.String(), s.URL() + "/", n["uibridge_connections"], n["uibridge_sessions"]}
}

// answer answers those who ask over the bus, until stop is called.
func (s *Service) answer() (stop func(), err error) {
	verbs := map[string]func(context.Context) (any, error){
		VerbLink: func(ctx context.Context) (any, error) {
			l, err := s.Link(ctx)
			if err == nil {
				s.deps.Log.Info("a one-time link was made for somebody on the bus", "expires", l.Expires)
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
				s.deps.Log.Warn("a question was not answered", "verb", verb, "error", err)
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
