package coreapi

import (
	"time"

	"skandha.dev/pkg/subject"
)

// The verbs about what agents have scheduled.
const (
	VerbSchedules = "schedules" // SchedulesQuery -> SchedulesPage; lists and deletes
	VerbOccur     = "occur"     // Occurrence -> Occurred; the call of a webhook that an agent has created
)

// ScheduleDelete is the action that deletes a schedule.
const ScheduleDelete = "delete"

// SchedulesQuery asks for schedules, and can delete one before.
type SchedulesQuery struct {
	Action  string          `json:"action,omitempty"`  // delete, with Agent, Session and Name
	Agent   subject.Agent   `json:"agent,omitempty"`   // only of this agent
	Session subject.Session `json:"session,omitempty"` // only of this session
	Name    string          `json:"name,omitempty"`    // only this one
	Limit   int             `json:"limit,omitempty"`   // default 100, at most 1000
	Caller  subject.Writer  `json:"caller,omitempty"`  // with Action: on whose behalf
}

// SchedulesPage is a list of schedules, by agent, session and name.
type SchedulesPage struct {
	Schedules []Schedule `json:"schedules"`
	More      bool       `json:"more,omitempty"` // there are more than the limit
}

// When says when a schedule occurs. Exactly one of At, Every, Cron, WhenIdle and Webhook is set.
type When struct {
	At       string `json:"at,omitempty"`        // RFC 3339; once
	Every    string `json:"every,omitempty"`     // a duration, such as 1h30m
	Cron     string `json:"cron,omitempty"`      // five fields, or @daily and the like
	WhenIdle string `json:"when_idle,omitempty"` // a duration without a turn
	Webhook  bool   `json:"webhook,omitempty"`   // whenever its address is called
	Zone     string `json:"zone"`                // of the wall clock; empty: UTC
	Jitter   string `json:"jitter,omitempty"`    // a duration by which each occurrence is late at most
	Until    string `json:"until,omitempty"`     // RFC 3339; nothing occurs afterwards
	Count    int    `json:"count,omitempty"`     // how often it occurs; 0: no limit
	// Watch is, with Every, a page that is read each time. It occurs only if the watch says so.
	Watch *Watch `json:"watch,omitempty"`
}

// Watch is what a watched page has to show. Without Above and Below, a change of the value is an
// occurrence; else that the value goes above or below.
type Watch struct {
	URL   string   `json:"url"`             // http or https
	Field string   `json:"field,omitempty"` // JSON pointer to the value; empty: all of the page's text
	Above *float64 `json:"above,omitempty"`
	Below *float64 `json:"below,omitempty"`
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
	// Path is the path of the webhook at the address of the page; Key is what its callers show.
	Path string `json:"path,omitempty"`
	Key  string `json:"key,omitempty"`
}

// WebhookPath is the path of the webhooks that agents create, without the hook's id.
const WebhookPath = "/hooks/"

// Occurrence is a call of a webhook. Key or Signature shows that the caller may.
type Occurrence struct {
	Hook      string `json:"hook"`                // of the path
	Key       string `json:"key,omitempty"`       // the hook's key, or
	Signature string `json:"signature,omitempty"` // sha256= and, in hex, the HMAC of the body with it
	ID        string `json:"id,omitempty"`        // of the call; a repeated one is the same input
	Body      string `json:"body,omitempty"`      // JSON, or empty
}

// Occurred says that a call was stored.
type Occurred struct {
	Sequence uint64 `json:"sequence"` // of its input
}
