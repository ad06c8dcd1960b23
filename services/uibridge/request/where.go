package request

import (
	"cmp"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/uibridge/contract"
)

// Ref checks an agent's and a session's name.
func Ref(agent, session string) (subject.Ref, error) {
	for _, id := range []struct{ field, value string }{{"agent", agent}, {"session", session}} {
		switch {
		case id.value == "":
			return subject.Ref{}, contract.Invalid(id.field, "missing; name the agent and the session")
		case !subject.Valid(id.value):
			return subject.Ref{}, contract.Invalid(id.field, "want 1 to 64 characters of A-Z a-z 0-9 _ -")
		}
	}
	return subject.Ref{Agent: subject.Agent(agent), Session: subject.Session(session)}, nil
}

// Fresh returns a new name for a session. Names sort by time.
func Fresh() subject.Session {
	return subject.Session(time.Now().UTC().Format("20060102-150405-") + strings.ToLower(rand.Text()[:8]))
}

// Attachment reads the parameters of a feed: agent, session, after, html, commits. Without
// agent and session it is the origin's session. If the origin has none, or with another
// agent, a session that is not named is a new one.
func Attachment(raw json.RawMessage, o Origin) (contract.Attachment, error) {
	var agent, session string
	a := contract.Attachment{Name: o.Source}
	if err := Decode(
		raw,
		Param{"agent", &agent, false},
		Param{"session", &session, false},
		Param{"after", &a.After, false},
		Param{"html", &a.HTML, false},
		Param{"commits", &a.Commits, false},
	); err != nil {
		return a, err
	}
	return a, whole(&a, agent, session, o)
}

// FromQuery reads the same from a URL's query, whose parameters have the same names; flags
// are 1 or 0. Parameters outside of allowed are refused.
func FromQuery(q url.Values, o Origin, allowed ...string) (contract.Attachment, error) {
	a := contract.Attachment{Name: o.Source, After: q.Get("after")}
	for name, values := range q {
		switch {
		case !slices.Contains(allowed, name):
			return a, contract.Invalid(clip(name), "unknown query parameter; available: "+strings.Join(allowed, ", "))
		case len(values) > 1:
			return a, contract.Invalid(name, "sent more than once")
		}
	}
	for name, flag := range map[string]*bool{"html": &a.HTML, "commits": &a.Commits} {
		switch v := q.Get(name); v {
		case "", "0", "false":
		case "1", "true":
			*flag = true
		default:
			return a, contract.Invalid(name, fmt.Sprintf("want 1 or 0, not %q", clip(v)))
		}
	}
	return a, whole(&a, q.Get("agent"), q.Get("session"), o)
}

func whole(a *contract.Attachment, agent, session string, o Origin) (err error) {
	if session == "" && (agent == "" || agent == string(o.Ref.Agent)) {
		session = string(o.Ref.Session)
	}
	a.Ref, err = Ref(cmp.Or(agent, string(o.Ref.Agent)), cmp.Or(session, string(Fresh())))
	return err
}

// UI returns the UI's name from a URL's query (ui=web), or other if it has none.
func UI(q url.Values, other string) (string, error) {
	switch v := q.Get("ui"); {
	case v == "":
		return other, nil
	case !subject.Valid(v):
		return "", contract.Invalid("ui", "want 1 to 64 characters of A-Z a-z 0-9 _ -")
	default:
		return v, nil
	}
}

// Refuse answers with an error as JSON, and with the given status, or the error's if it is
// 0.
func Refuse(w http.ResponseWriter, err error, status int) {
	e := contract.ErrorOf(err)
	if status == 0 {
		status = e.Status()
	}
	if e.RetryAfterMS > 0 {
		w.Header().Set("Retry-After", fmt.Sprint((e.RetryAfterMS+999)/1000))
	}
	JSON(w, status, e)
}

// JSON answers with a value as JSON.
func JSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the client may have disconnected
}
