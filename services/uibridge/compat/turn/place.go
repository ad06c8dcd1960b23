package turn

import (
	"cmp"
	"strconv"
	"strings"
)

// CommitOf returns the sequence of the commit that a notification's id belongs to; 0 for the place
// before the first one.
func CommitOf(id string) uint64 {
	commit, _, _ := strings.Cut(id, ".")
	n, err := strconv.ParseUint(commit, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// Later reports whether the id of a notification is that of a later place in the log than another.
func Later(id, than string) bool {
	return cmp.Or(cmp.Compare(CommitOf(id), CommitOf(than)), cmp.Compare(indexOf(id), indexOf(than))) > 0
}

// indexOf returns the index of an event in its commit; -1 for the commit itself.
func indexOf(id string) int {
	_, index, _ := strings.Cut(id, ".")
	n, err := strconv.Atoi(index)
	if err != nil {
		return -1
	}
	return n
}
