// Package memory defines what an agent remembers beyond one session.
package memory

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"skandha.dev/pkg/subject"
)

// Kind is what a memory is about.
type Kind string

// The kinds.
const (
	Fact       Kind = "fact"       // somebody said it, or the agent found it out
	Note       Kind = "note"       // kept on purpose, by a person, a service or a plugin
	Experience Kind = "experience" // a turn: what was asked, what was done, how it ended
	Lesson     Kind = "lesson"     // how a call that failed was corrected
	Capability Kind = "capability" // a tool that has served a kind of request
)

// Kinds returns all kinds.
func Kinds() []Kind { return []Kind{Fact, Note, Experience, Lesson, Capability} }

// Origin is what the text of a memory came from.
type Origin string

// The origins, most trusted first.
const (
	FromPerson Origin = "person" // a user's own words
	FromAgent  Origin = "agent"  // the model's words, in a turn that read nothing from outside
	FromTool   Origin = "tool"   // a tool's result, or words of a model that has read one
	FromWeb    Origin = "web"    // a page, a mail or another text by strangers
)

// Origins returns all origins, most trusted first.
func Origins() []Origin { return []Origin{FromPerson, FromAgent, FromTool, FromWeb} }

// Trusted reports whether the text may be read as the wish of a user. Other texts are data:
// a model must not follow instructions in them.
func (o Origin) Trusted() bool { return o == FromPerson }

// Source is who or what caused a memory.
type Source struct {
	Origin    Origin          `json:"origin"`
	Principal subject.Writer  `json:"principal,omitempty"` // the writer of the input
	Session   subject.Session `json:"session,omitempty"`
	Turn      string          `json:"turn,omitempty"`
	Call      string          `json:"call,omitempty"` // the tool call that stored it
	Tool      string          `json:"tool,omitempty"` // whose result it is from
	URL       string          `json:"url,omitempty"`  // of the page or mail
}

// Outcome is how the turn of an experience ended.
type Outcome struct {
	Status       string   `json:"status"`          // "answered", or the code of turn.failed
	Tools        []string `json:"tools,omitempty"` // that were called, in order, each once
	Failed       []string `json:"failed,omitempty"`
	CostMicroUSD int64    `json:"cost_micro_usd,omitempty"`
	DurationMS   int64    `json:"duration_ms,omitempty"`
}

// Memory is one thing that an agent remembers.
type Memory struct {
	ID      string        `json:"id"` // unique within the agent
	Agent   subject.Agent `json:"agent"`
	Kind    Kind          `json:"kind"`
	Text    string        `json:"text"`
	Source  Source        `json:"source"`
	Pinned  bool          `json:"pinned,omitempty"`  // always shown to the model
	Outcome *Outcome      `json:"outcome,omitempty"` // of an experience
	Created time.Time     `json:"created"`
	Updated time.Time     `json:"updated,omitzero"` // by a correction
}

// Hit is a memory that matches a query.
type Hit struct {
	Memory
	Score float64 `json:"score"` // higher is better; comparable within one answer only
	Match Match   `json:"match"`
}

// Match is how a hit was found.
type Match string

// The ways to find a memory.
const (
	Semantic Match = "semantic" // by the distance of embeddings
	Lexical  Match = "lexical"  // by words that query and text share
)

// The limits of a memory.
const (
	MaxText = 16 << 10 // bytes
	maxID   = 128
	maxURL  = 2 << 10
)

// Check validates m; the error begins with the name of the field.
func (m Memory) Check() error {
	switch {
	case m.ID == "" || len(m.ID) > maxID || !utf8.ValidString(m.ID):
		return fmt.Errorf("id is %.140q, want 1 to %d bytes of UTF-8", m.ID, maxID)
	case !subject.Valid(m.Agent):
		return fmt.Errorf("agent is %.80q, want an id of 1 to 64 letters, digits, _ or -", m.Agent)
	case !slices.Contains(Kinds(), m.Kind):
		return fmt.Errorf("kind is %.40q, want one of %v", m.Kind, Kinds())
	case strings.TrimSpace(m.Text) == "" || len(m.Text) > MaxText:
		return fmt.Errorf("text has %d bytes, want 1 to %d", len(m.Text), MaxText)
	case !utf8.ValidString(m.Text):
		return errors.New("text is not UTF-8")
	case len(m.Source.URL) > maxURL || len(m.Source.Tool)+len(m.Source.Turn)+len(m.Source.Call) > 3*maxID:
		return fmt.Errorf("source is too long: url may have %d bytes, tool, turn and call %d together", maxURL, 3*maxID)
	case !slices.Contains(Origins(), m.Source.Origin):
		return fmt.Errorf("source.origin is %.40q, want one of %v", m.Source.Origin, Origins())
	}
	return nil
}
