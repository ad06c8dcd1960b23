package schedules

import (
	"context"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/coreapi"
)

const (
	defaultList = 100
	maxList     = 1000
)

// Query answers a request for schedules.
func (s *Schedules) Query(ctx context.Context, q coreapi.SchedulesQuery) (coreapi.SchedulesPage, error) {
	out := coreapi.SchedulesPage{Schedules: []coreapi.Schedule{}}
	switch {
	case q.Limit < 0 || q.Limit > maxList:
		return out, bus.Errorf(bus.CodeInvalidArgument, "query: limit is %d, want 1 to %d, or 0 for %d", q.Limit, maxList, defaultList)
	case q.Action != "" && q.Action != coreapi.ScheduleDelete:
		return out, bus.Errorf(bus.CodeInvalidArgument, "query: action is %q, want delete", q.Action)
	case q.Action != "" && (q.Agent == "" || q.Session == "" || q.Name == ""):
		return out, bus.Errorf(bus.CodeInvalidArgument, "query: delete requires agent, session and name")
	}
	for field, id := range map[string]string{"agent": string(q.Agent), "session": string(q.Session), "name": q.Name} {
		if id != "" && !subject.Valid(id) {
			return out, bus.Errorf(bus.CodeInvalidArgument, "query: %s is %q, want 1 to %d characters of A-Z a-z 0-9 _ -",
				field, id, subject.MaxIDLen)
		}
	}
	if err := s.await(ctx); err != nil {
		return out, bus.Errorf(bus.CodeUnavailable, "%v", err)
	}
	if q.Action != "" {
		was, err := s.remove(ctx, subject.Ref{Agent: q.Agent, Session: q.Session}, q.Name)
		if err == nil && !was {
			err = bus.Errorf(bus.CodeNotFound, "session %s/%s has no schedule %q", q.Agent, q.Session, q.Name)
		}
		if err != nil {
			return out, err
		}
	}
	if q.Limit == 0 {
		q.Limit = defaultList
	}
	for _, r := range s.list(func(r *record) bool {
		return (q.Agent == "" || r.Agent == q.Agent) && (q.Session == "" || r.Session == q.Session) && (q.Name == "" || r.Name == q.Name)
	}) {
		if len(out.Schedules) == q.Limit {
			out.More = true
			break
		}
		out.Schedules = append(out.Schedules, s.info(r))
	}
	return out, nil
}
