package decide

import (
	"slices"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/core/commands"
)

// Paused is set in a session that somebody has paused (rule 19). What runs is finished, and its
// outcome is kept. Nothing else starts: inputs wait in the queue, and the open turn waits for what it
// would do next.
type Paused struct {
	By    subject.Writer `json:"by"`
	Since time.Time      `json:"since"`
}

func (x *causeDecider) pause() string {
	if p := x.s.Paused; p != nil {
		return commands.AlreadyPaused(p.By, p.Since)
	}
	x.emitIn("", event.SessionPaused{By: x.c.Writer, Paused: true})
	return commands.WasPaused(x.s.running())
}

// resume ends the pause. What waited starts after the command has its terminal event.
func (x *causeDecider) resume() string {
	p := x.s.Paused
	if p == nil {
		return commands.NotPaused
	}
	x.emitIn("", event.SessionPaused{By: x.c.Writer})
	return commands.Resumed(p.By, p.Since, len(x.s.Queue))
}

// goOn starts what waited for /resume. Its delivery becomes the driver of the open turn, because the
// earlier driver's may have been acknowledged (rule 19).
func (x *causeDecider) goOn() {
	if x.s.Turn != nil {
		x.touched = true
		x.advance()
	}
}

// onPaused moves the turn's deadline by the time of the pause, like that of people who answer.
func (s *State) onPaused(p event.SessionPaused) {
	was := s.Paused
	switch {
	case p.Paused:
		s.Paused = &Paused{By: p.By, Since: s.Now}
		return
	case was != nil && s.Turn != nil:
		s.Turn.Deadline = s.Turn.Deadline.Add(s.Now.Sub(was.Since))
		s.Turn.Idle = s.Now
	}
	s.Paused = nil
}

// running reports whether an executor works on the turn.
func (s *State) running() bool {
	return s.Turn != nil && (s.Turn.Plan != nil ||
		slices.ContainsFunc(s.Turn.Steps, func(st Step) bool { return st.Status == Assigned }))
}

// held reports whether the open turn does nothing but wait for /resume, and perhaps for people.
func (s *State) held() bool { return s.Paused != nil && s.Turn != nil && !s.running() }
