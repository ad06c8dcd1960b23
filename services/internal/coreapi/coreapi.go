// Package coreapi defines the requests that any core replica answers on service.core.<verb>, and
// those that change something on service.admin.<verb>, for its clients: the command and the UI
// bridge. Credentials that may only see have the first alone. The schemas are in
// schemas/service/core. service.core.session, plugins, plugin and order answer with types
// that only core knows; clients pass them on, or read the fields that they need.
package coreapi

import (
	"encoding/json"
	"time"

	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/executor"
)

// ServiceName is core's name on the bus: in service.core.<verb>, and as the responder of
// its answers.
const ServiceName = "core"

// AdminName is the service of requests that change something, in service.admin.<verb>. Core answers
// them.
const AdminName = "admin"

// The verbs that any core replica answers. Those marked are of the service [AdminName]; memory, outbox and
// schedules are of both, and change something there only.
const (
	VerbTools    = "tools"    // -> []ToolInfo
	VerbSessions = "sessions" // SessionsQuery -> SessionsPage
	VerbSession  = "session"  // subject.Ref -> SessionInfo
	VerbPast     = "past"     // PastQuery -> PastPage; on subject.Past
	VerbMessages = "messages" // MessagesQuery -> MessagesPage
	VerbStatus   = "status"   // -> Status
	VerbRefill   = "refill"   // RefillQuery -> RefillAnswer; admin
	VerbHooks    = "hooks"    // -> HooksInfo
	VerbCall     = "call"     // tool.InternalCall -> tool.Result; on subject.Call
	VerbPlugins  = "plugins"  // -> plugins, in the order of execution (schemas/service/core/plugins.json)
	VerbPlugin   = "plugin"   // an operator's request about a plugin -> the plugin; admin
)

// ServiceOf returns the service whose verb it is, where a verb of both changes something.
func ServiceOf(verb string) string {
	switch verb {
	case VerbRefill, VerbPlugin, VerbMemory, VerbOutbox, VerbSchedules, VerbAudit:
		return AdminName
	}
	return ServiceName
}

// ToolInfo is a tool with its statistics over all sessions.
type ToolInfo struct {
	tool.Spec
	Live          bool    `json:"live"` // an executor offers it now
	Used          int64   `json:"used"`
	Succeeded     int64   `json:"succeeded"`
	Unknown       int64   `json:"unknown"`      // outcome_unknown
	SuccessRate   float64 `json:"success_rate"` // Beta(1,1) prior: 0.5 until it is used
	MeanLatencyMS int64   `json:"mean_latency_ms"`
}

// SessionsQuery asks for a page of sessions.
type SessionsQuery struct {
	Agent   string `json:"agent,omitempty"` // empty: all
	Limit   int    `json:"limit,omitempty"`
	After   string `json:"after,omitempty"`   // cursor from the previous page
	Deleted bool   `json:"deleted,omitempty"` // those that were deleted, instead of the others
}

// SessionsPage is a page of sessions, most recently updated first.
type SessionsPage struct {
	Sessions []SessionRow `json:"sessions"`
	Next     string       `json:"next,omitempty"`
	View     *View        `json:"view,omitempty"` // when it is not complete
}

// SessionRow is a session in a listing.
type SessionRow struct {
	subject.Ref
	Revision uint64    `json:"revision"`
	State    string    `json:"state"`
	Title    string    `json:"title"`
	Turns    int       `json:"turns"`
	Updated  time.Time `json:"updated"`
	// Above is agent/session of the session that it works for; empty: none.
	Above string `json:"above,omitempty"`
}

// PastQuery asks for a page of what happened in a session.
type PastQuery struct {
	After uint64 `json:"after,omitempty"` // the next of the previous page
	Limit int    `json:"limit,omitempty"` // commits; default 100
}

// PastPage is a page of a session's commits, oldest first.
type PastPage struct {
	Commits []PastCommit `json:"commits"`
	Next    uint64       `json:"next,omitempty"` // 0: there are no more
}

// PastCommit is one commit. Its events are omitted if they do not fit into an answer.
type PastCommit struct {
	Sequence uint64          `json:"sequence"`
	Time     time.Time       `json:"time"`
	Events   json.RawMessage `json:"events,omitempty"`  // a batch of CloudEvents
	Omitted  int             `json:"omitted,omitempty"` // bytes
}

// MessagesQuery asks for a page of a session's causes and commits, also of those that have left the log.
type MessagesQuery struct {
	subject.Ref
	After uint64 `json:"after,omitempty"` // the next of the previous page
	Limit int    `json:"limit,omitempty"` // messages; default 100
}

// MessagesPage is a page of a session's messages, in order.
type MessagesPage struct {
	Messages []Message `json:"messages"`
	Next     uint64    `json:"next,omitempty"` // 0: there are no more
}

// Message is one message of the log or the archive.
type Message struct {
	Sequence uint64    `json:"sequence"`
	Time     time.Time `json:"time"`
	Subject  string    `json:"subject"`
	Body     []byte    `json:"body"` // as it was stored
}

// Status is the state of the system as one core sees it.
type Status struct {
	Instance  subject.Instance        `json:"instance"`
	Version   string                  `json:"version"`
	Agents    []subject.Agent         `json:"agents"`
	Open      int                     `json:"open_sessions"`
	Executors []executor.Announcement `json:"executors"`
	Missing   string                  `json:"missing,omitempty"` // tools that model calls are waiting for, and why
	Counters  map[string]int64        `json:"counters"`
	View      View                    `json:"view"`
	Faults    []Fault                 `json:"faults,omitempty"`   // of the whole system, now
	Troubles  []Trouble               `json:"troubles,omitempty"` // of single sessions, or of the log
	// guides that agents name and this core could not load
	Guides []GuideTrouble `json:"guides,omitempty"`
}

// GuideTrouble describes a guide that is missing, or whose latest version was refused.
type GuideTrouble struct {
	Agent    subject.Agent `json:"agent"`
	Guide    string        `json:"guide"`
	Required bool          `json:"required,omitempty"` // the agent does not answer while it is missing
	Stale    bool          `json:"stale,omitempty"`    // an earlier version is in use
	Reason   string        `json:"reason"`
}

// ViewState is the state of the view compared with the log.
type ViewState string

// The states of the view.
const (
	ViewUnknown     ViewState = "unknown"     // not compared with the log yet
	ViewComplete    ViewState = "complete"    // except for the last seconds
	ViewRefilling   ViewState = "refilling"   // sessions are missing; they are folded from the log
	ViewUnavailable ViewState = "unavailable" // the store cannot be read or written now
)

// View describes how complete the list of sessions, their snapshots and the statistics
// of the tools are.
type View struct {
	State    ViewState `json:"state"`
	Sessions int       `json:"sessions"`        // in the log, at the last comparison
	Done     int       `json:"done"`            // of these, found or made complete
	Failed   int       `json:"failed"`          // of these, sessions whose log cannot be folded
	Error    string    `json:"error,omitempty"` // why it is unavailable
}

// RefillQuery asks core to rewrite a session, or all of them, in the view.
type RefillQuery struct {
	Agent   subject.Agent   `json:"agent,omitempty"`
	Session subject.Session `json:"session,omitempty"`
	All     bool            `json:"all,omitempty"`    // in the background; Status reports the progress
	Caller  subject.Writer  `json:"caller,omitempty"` // on whose behalf
}

// RefillAnswer reports what was written.
type RefillAnswer struct {
	Revision uint64 `json:"revision,omitempty"` // of the session
}

// The kinds of [Fault].
const (
	FaultBus       = "bus"       // the log cannot store: no input is accepted, no turn continues
	FaultView      = "view"      // snapshots, lists and statistics are not written; turns continue
	FaultOverload  = "overload"  // inputs are refused until fewer wait
	FaultOutbox    = "outbox"    // messages to people were given up
	FaultSchedules = "schedules" // schedules of agents that are not configured do not occur
	FaultRetention = "retention" // turns cannot leave the log, which grows
	FaultAudit     = "audit"     // the audit log was damaged, or its head is not published
	FaultProvider  = "provider"  // no service offers an agent's language model: its turns wait, then fail
)

// Fault is a problem that an operator should know about, and may have to fix.
type Fault struct {
	What    string        `json:"what"`
	Agent   subject.Agent `json:"agent,omitempty"` // only for [FaultProvider]
	Message string        `json:"message"`         // what is wrong, and what to do
	Since   time.Time     `json:"since,omitzero"`
}

// Trouble is a session, or the log itself, that needs an operator.
type Trouble struct {
	subject.Ref             // zero for the log itself
	Kind        TroubleKind `json:"kind"`
	Reason      string      `json:"reason"`
	Since       time.Time   `json:"since"`  // when this core found it
	Latest      time.Time   `json:"latest"` // when it last reported it
}

// TroubleKind is the kind of a trouble.
type TroubleKind = string

// The kinds of trouble.
const (
	TroubleDamaged = "damaged" // the log was damaged; the session is locked until /repair or /reset
	TroubleNewer   = "newer"   // a newer core wrote the session; its inputs wait for one
	TroubleLog     = "log"     // the log of all sessions has lost its end, or streams were lost
)

// HooksInfo describes the hook points as one core sees them.
type HooksInfo struct {
	Instance subject.Instance `json:"instance"` // the core that counted
	Points   []PointInfo      `json:"points"`   // all of them, in the order of the loop
}

// PointInfo is one hook point.
type PointInfo struct {
	Point    hook.Point `json:"point"`
	Mode     hook.Mode  `json:"mode"` // unless a plugin declares another
	BudgetMS int64      `json:"budget_ms"`
	Plugins  []HookInfo `json:"plugins"` // in the order in which they are asked
}

// HookInfo describes one plugin at a point, with its statistics since the core started.
type HookInfo struct {
	Plugin    subject.Plugin   `json:"plugin"`
	Mode      hook.Mode        `json:"mode"`
	OnError   hook.OnErrorRule `json:"on_error"`
	OnSilence hook.OnErrorRule `json:"on_silence"` // applies if there is no answer at all
	// at before_act: configuration requires it, and it cannot change the call
	Judge      bool   `json:"judge,omitempty"`
	DeadlineMS int64  `json:"deadline_ms"`
	Unasked    string `json:"unasked,omitempty"` // why it is not asked
	Asked      int64  `json:"asked"`
	Failed     int64  `json:"failed"`
	P50US      int64  `json:"p50_us"`
	P99US      int64  `json:"p99_us"`
	LastError  string `json:"last_error,omitempty"`
}
