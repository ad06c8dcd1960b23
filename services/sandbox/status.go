package sandbox

import (
	"context"
	"time"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/sandbox/driver"
	"skandha.dev/services/sandbox/pool"
)

// Status describes an instance.
type Status struct {
	Instance subject.Instance `json:"instance"`
	Driver   *driver.Report   `json:"driver,omitempty"` // absent: no driver
	Error    string           `json:"error,omitempty"`  // why there is no driver, and what to do
	Limits   driver.Limits    `json:"limits"`
	Sessions int              `json:"sessions"` // that have a sandbox
	Pool     pool.Stats       `json:"pool"`
}

// reportWithin bounds how long the driver may take to describe itself.
const reportWithin = 5 * time.Second

// Status returns the instance's current status.
func (s *Service) Status(ctx context.Context) Status {
	ctx, cancel := context.WithTimeout(ctx, reportWithin)
	defer cancel()
	st := Status{Instance: s.bus.Instance(), Limits: s.cfg.Limits, Sessions: s.leases.count(), Pool: s.pool.Stats()}
	if r, err := s.driver.Report(ctx); err != nil {
		st.Error = err.Error()
	} else {
		st.Driver = &r
	}
	return st
}
