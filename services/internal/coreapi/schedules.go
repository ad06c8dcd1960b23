package coreapi

import (
	"time"

	"skandha.dev/pkg/subject"
)

// VerbSchedules lists and deletes the schedules that agents have created.
const VerbSchedules = "schedules" // SchedulesQuery -> SchedulesPage

// ScheduleDelete is the action that deletes a schedule.
const ScheduleDelete = "delete"

// SchedulesQuery asks for schedules, and can delete one before.
type SchedulesQuery struct {
	Action  string          `json:"action,omitempty"`  // delete, with Agent, Session and Name
	Agent   subject.Agent   `json:"agent,omitempty"`   // only of this agent
	Session subject.Session `json:"session,omitempty"` // only of this session
	Name    string          `json:"name,omitempty"`    // only this one
	Limit   int             `json:"limit,omitempty"`   // default 100, at most 1000
}

// SchedulesPage is a list of schedules, by agent, session and name.
type SchedulesPage struct {
	Schedules []Schedule `json:"schedules"`
	More      bool       `json:"more,omitempty"` // there are more than the limit
}

// When says when a schedule occurs. Exactly one of At, Every, Cron and WhenIdle is set.
type When struct {
	At       string `json:"at,omitempty"`        // RFC 3339; once
	Every    string `json:"every,omitempty"`     // a duration, such as 1h30m
	Cron     string `json:"cron,omitempty"`      // five fields, or @daily and the like
	WhenIdle string `json:"when_idle,omitempty"` // a duration without a turn
	Zone     string `json:"zone"`                // of the wall clock; empty: UTC
	Jitter   string `json:"jitter,omitempty"`    // a duration by which each occurrence is late at most
	Until    string `json:"until,omitempty"`     // RFC 3339; nothing occurs afterwards
	Count    int    `json:"count,omitempty"`     // how often it occurs; 0: no limit
}

// Schedule is a schedule that an agent has created.
type Schedule struct {
	subject.Ref
	Name string `json:"name"`
	Text string `json:"text"` // of its inputs
	When
	Created  time.Time   `json:"created"`
	Turn     string      `json:"turn,omitempty"` // that created it
	Occurred int         `json:"occurred,omitempty"`
	Last     time.Time   `json:"last,omitzero"`     // the last occurrence
	Next     []time.Time `json:"next,omitempty"`    // the next occurrences; none with WhenIdle
	Problem  string      `json:"problem,omitempty"` // why it does not occur
}
