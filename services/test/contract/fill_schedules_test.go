package contract

import "skandha.dev/services/internal/coreapi"

// oneKindOfSchedule leaves one of the ways to say when it occurs.
func oneKindOfSchedule(f *filler, p any) {
	s := p.(*coreapi.Schedule)
	s.At, s.Every, s.Cron, s.WhenIdle, s.Zone = "", "", "", "", "Europe/Berlin"
	s.Occurred, s.Next = max(1, s.Occurred), nil
	watch := s.Watch
	s.Webhook, s.Path, s.Key, s.Watch = false, "", "", nil
	switch f.r.IntN(5) {
	case 0:
		s.At = "2026-11-21T08:30:00Z"
	case 1:
		s.Every, s.Watch = "24h0m0s", watch
	case 2:
		s.Cron = "30 8 * * mon-fri"
	case 3:
		s.Webhook, s.Path, s.Key = true, "/hooks/0a1b2c3d4e5f", "hook_Zm9vYmFy"
	default:
		s.WhenIdle = "30m0s"
	}
}

// namedSchedule names the schedule that is to be deleted.
func namedSchedule(_ *filler, p any) {
	if q := p.(*coreapi.SchedulesQuery); q.Action != "" {
		q.Agent, q.Session, q.Name = "demo", "s1", "weekly"
	}
}
