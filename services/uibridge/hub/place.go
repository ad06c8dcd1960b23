package hub

import (
	"cmp"
	"strconv"
	"strings"

	"skandha.dev/services/internal/follow"
	"skandha.dev/services/uibridge/contract"
)

// place is a position in a session's order of events. The index is [header] for a commit
// itself, which precedes its events, and [follow.All] after the last of them.
type place struct {
	commit uint64
	index  int
}

const (
	header   = -1
	headerID = "h"
	start    = "0" // before the first commit
)

func (p place) compare(q place) int {
	return cmp.Or(cmp.Compare(p.commit, q.commit), cmp.Compare(p.index, q.index))
}

func (p place) before(q place) bool { return p.compare(q) < 0 }

// id returns the notification's id; "0" for the place before the first commit.
func (p place) id() string {
	switch {
	case p.commit == 0:
		return start
	case p.index == header:
		return strconv.FormatUint(p.commit, 10) + "." + headerID
	}
	return strconv.FormatUint(p.commit, 10) + "." + strconv.Itoa(p.index)
}

// parsePlace parses an id strictly: every place has only one spelling.
func parsePlace(id string) (place, error) {
	if id == start {
		return place{0, follow.All}, nil
	}
	left, right, ok := strings.Cut(id, ".")
	commit, err := strconv.ParseUint(left, 10, 64)
	p := place{commit, header}
	if ok && err == nil && right != headerID {
		p.index, err = strconv.Atoi(right)
	}
	if !ok || err != nil || p.commit == 0 || p.index >= follow.All || p.id() != id {
		return place{}, contract.Invalid("after",
			`want the id of a notification, such as "17.2" or "17.h", "0" for the beginning, `+
				`or none for new notifications only`)
	}
	return p, nil
}
