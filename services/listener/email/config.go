package email

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/bounds"
	"skandha.dev/services/internal/mail/mailstore"
)

// Start is which letters count at the first start.
type Start string

// The choices.
const (
	StartNew Start = "new" // those that arrive from then on (default)
	StartAll Start = "all" // all that are in the folder
)

// Config of a listener.
type Config struct {
	Account string `yaml:"account"` // of email.accounts; may be empty if there is one
	Agent   string `yaml:"agent"`   // default main
	// Session receives all letters. Default: each thread has a session.
	Session string `yaml:"session"`
	Folder  string `yaml:"folder"` // default INBOX
	// From are the senders that wake the agent: addresses in which * means any characters.
	// Required; "*" is everybody.
	From []string `yaml:"from"`
	// AuthServer is the name under which the receiving server reports how it verified a sender:
	// the first word of its Authentication-Results. Only letters that passed DMARC count then.
	AuthServer string `yaml:"auth_server"`
	Lists      bool   `yaml:"lists"`     // letters of mailing lists count, too
	Start      Start  `yaml:"start"`     // new or all; default new
	MarkSeen   bool   `yaml:"mark_seen"` // once stored, a letter is marked as read
	MoveTo     string `yaml:"move_to"`   // once stored, a letter is moved to this folder
	// Poll is how often new letters are sought, even if the server reports none.
	Poll time.Duration `yaml:"poll" default:"1m" min:"1s" max:"1h"`
	// Redial is how long a connection is used.
	Redial time.Duration   `yaml:"redial" default:"15m" min:"10s" max:"29m"`
	Mode   event.InputMode `yaml:"mode"` // queue or interrupt; default queue
}

func (c Config) withDefaults() Config {
	c.Agent = cmp.Or(c.Agent, "main")
	c.Folder = cmp.Or(c.Folder, mailstore.Inbox)
	c.Start = cmp.Or(c.Start, StartNew)
	return bounds.Filled(c)
}

// Validate reports everything that is wrong; each error names its field.
func (c Config) Validate() error {
	c = c.withDefaults()
	errs := []error{bounds.Check("", c)}
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if _, err := subject.ParseRef(c.Agent, cmp.Or(c.Session, "x")); err != nil {
		wrong("agent or session: %w", err)
	}
	if len(c.From) == 0 {
		wrong(`from is empty; list the senders that wake the agent, such as "*@example.org"`)
	}
	for _, p := range c.From {
		if _, err := path.Match(p, ""); err != nil || p != "*" && !strings.Contains(p, "@") {
			wrong(`from: %q is not a pattern of addresses; write one such as "alice@example.org" or "*@example.org"`, p)
		}
	}
	if !slices.Contains([]Start{StartNew, StartAll}, c.Start) {
		wrong("start is %q, want new or all", string(c.Start))
	}
	if c.MoveTo != "" && strings.EqualFold(c.MoveTo, c.Folder) {
		wrong("move_to is %q, the folder that the listener reads; name another one", c.MoveTo)
	}
	if err := (event.Input{Text: "x", Mode: c.Mode}).Check(); err != nil {
		wrong("mode: %w", err)
	}
	return errors.Join(errs...)
}

// admits reports whether a sender may wake the agent.
func (c Config) admits(sender string) bool {
	return sender != "" && slices.ContainsFunc(c.From, func(p string) bool {
		ok, err := path.Match(strings.ToLower(p), sender)
		return ok && err == nil || p == "*"
	})
}
