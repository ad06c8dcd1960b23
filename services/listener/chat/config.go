package chat

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/bounds"
)

// Anybody is what allow has for every account.
const Anybody = "*"

// Others is what becomes of the messages of accounts that allow does not name.
type Others string

// What others may do.
const (
	OthersIgnored Others = "ignore" // their messages are ignored (default)
	OthersData    Others = "data"   // their messages are inputs whose text is data, with an origin
)

// Config is what the configuration of every chat gateway has.
type Config struct {
	Agent string          `yaml:"agent" default:"main"`
	Rooms map[string]Room `yaml:"rooms"` // by the network's name of the room
	// accept direct messages: each person has a session
	Direct bool     `yaml:"direct"`
	Allow  []string `yaml:"allow"` // accounts that may talk to the agent; "*": every account
	// accounts that may approve calls; default: those of allow, without "*"
	Approve []string `yaml:"approve"`
	// messages of accounts that are not in allow: ignore, or data, which the model does not obey; default ignore
	Others Others `yaml:"others"`
	// messages of one account in a minute
	PerMinute int `yaml:"per_minute" default:"20" min:"1" max:"6000"`
}

// Room is a room of a chat network.
type Room struct {
	Session string `yaml:"session"` // default: derived from the names of the listener and the room
	// only messages that address the agent by its name are inputs; default true
	Mention *bool    `yaml:"mention"`
	Allow   []string `yaml:"allow"`   // instead of the gateway's
	Approve []string `yaml:"approve"` // instead of the gateway's
}

// WithDefaults returns the configuration with its defaults.
func (c Config) WithDefaults() Config {
	c = bounds.Filled(c)
	if c.Others == "" {
		c.Others = OthersIgnored
	}
	return c
}

// Validate reports what is wrong, except for numbers out of their bounds, which package bounds
// finds in the configuration that embeds this one; each error names its field.
func (c Config) Validate() error {
	c = c.WithDefaults()
	errs := []error{c.checkAccounts()}
	if _, err := subject.Parse[subject.Agent](c.Agent); err != nil {
		errs = append(errs, fmt.Errorf("agent: %w", err))
	}
	if c.Others != OthersIgnored && c.Others != OthersData {
		errs = append(errs, fmt.Errorf("others is %q, want ignore or data", c.Others))
	}
	if len(c.Rooms) == 0 && !c.Direct {
		errs = append(errs, errors.New("rooms is empty; name a room, or set direct: true for direct messages"))
	}
	taken := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(c.Rooms)) {
		s := c.Rooms[name].Session
		if s == "" {
			continue
		}
		if _, err := subject.Parse[subject.Session](s); err != nil {
			errs = append(errs, fmt.Errorf("rooms.%s.session: %w", name, err))
		}
		if other := taken[s]; other != "" {
			errs = append(errs, fmt.Errorf("rooms.%s.session: %q is also the session of %s; choose another", name, s, other))
		}
		taken[s] = name
	}
	return errors.Join(errs...)
}

func (c Config) checkAccounts() error {
	errs := []error{checkAccounts("allow", c.Allow, true), checkAccounts("approve", c.Approve, false)}
	needed := c.Direct
	for _, name := range slices.Sorted(maps.Keys(c.Rooms)) {
		r := c.Rooms[name]
		needed = needed || len(r.Allow) == 0
		errs = append(errs, checkAccounts("rooms."+name+".allow", r.Allow, true),
			checkAccounts("rooms."+name+".approve", r.Approve, false))
	}
	if needed && len(c.Allow) == 0 && c.Others != OthersData {
		errs = append(errs, errors.New("allow is empty; name the accounts that may talk to the agent, "+
			`or "*" for every account`))
	}
	return errors.Join(errs...)
}

func checkAccounts(field string, accounts []string, anybody bool) error {
	var errs []error
	for i, a := range accounts {
		switch {
		case a == "" || len(a) > event.MaxFrom:
			errs = append(errs, fmt.Errorf("%s[%d] has %d bytes, want 1 to %d", field, i, len(a), event.MaxFrom))
		case a == Anybody && !anybody:
			errs = append(errs, fmt.Errorf(`%s[%d] is "*", which would let everybody approve; name the accounts`, field, i))
		}
	}
	return errors.Join(errs...)
}

// place is where a message is: a room, or a conversation with one person.
type place struct {
	session        string // empty: derived
	mention        bool
	allow, approve []string
}

// place finds a room by its name; "" is a direct message.
func (h *Hub) place(room string) (place, bool) {
	if room == "" {
		return place{allow: h.cfg.Allow, approve: approvers(h.cfg.Approve, h.cfg.Allow)}, h.cfg.Direct
	}
	r, ok := h.cfg.Rooms[room]
	return place{
		session: r.Session, mention: r.Mention == nil || *r.Mention, allow: first(r.Allow, h.cfg.Allow),
		approve: approvers(r.Approve, h.cfg.Approve, r.Allow, h.cfg.Allow),
	}, ok
}

// approvers are the accounts that may approve, from the first list that is not empty. By default
// they are those that may talk, because an account that instructs the agent could ask it for the
// same call; but only those that the configuration names, so that in a room that is open to
// everybody nobody approves by default.
func approvers(lists ...[]string) []string {
	return slices.DeleteFunc(slices.Clone(first(lists...)), func(a string) bool { return a == Anybody })
}

// first returns the first list that is not empty.
func first(lists ...[]string) []string {
	for _, l := range lists {
		if len(l) > 0 {
			return l
		}
	}
	return nil
}

func (p place) mayTalk(account string) bool {
	return account != "" && (slices.Contains(p.allow, account) || slices.Contains(p.allow, Anybody))
}

func (p place) mayApprove(account string) bool {
	return account != "" && slices.Contains(p.approve, account)
}

// named reports whether the configuration names any of these accounts as one that may talk or approve.
func (c Config) named(account string) bool {
	in := func(lists ...[]string) bool {
		return slices.ContainsFunc(lists, func(l []string) bool { return slices.Contains(l, account) })
	}
	if in(c.Allow, c.Approve) {
		return true
	}
	for _, r := range c.Rooms {
		if in(r.Allow, r.Approve) {
			return true
		}
	}
	return false
}

// Canonical returns the configuration with the names of rooms and accounts in the form that
// the network compares, or an error if two rooms have the same name then.
func (c Config) Canonical(room, account func(string) string) (Config, error) {
	rooms := make(map[string]Room, len(c.Rooms))
	each := func(in []string) []string {
		var out []string
		for _, a := range in {
			if a != Anybody {
				a = account(a)
			}
			out = append(out, a)
		}
		return out
	}
	for _, name := range slices.Sorted(maps.Keys(c.Rooms)) {
		r := c.Rooms[name]
		r.Allow, r.Approve = each(r.Allow), each(r.Approve)
		n := room(name)
		if _, twice := rooms[n]; twice {
			return c, fmt.Errorf("rooms.%s: the room is listed twice, in different spellings; remove one", strings.TrimSpace(name))
		}
		rooms[n] = r
	}
	c.Rooms, c.Allow, c.Approve = rooms, each(c.Allow), each(c.Approve)
	return c, nil
}
