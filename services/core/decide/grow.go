package decide

import "sync/atomic"

// tail guards the free end of an array that several states share. A session's
// states follow one another, so that nearly always the newest may append in
// place; copying the window for every commit would cost more than deciding.
type tail struct{ free atomic.Int64 }

// grow appends v. Of all the states that share the array of s, the first to take
// an element may write it; any other copies. No state sees more than its own
// length, so what a state holds never changes.
func grow[T any](s []T, t **tail, v T) []T {
	if free := int64(cap(s) - len(s)); free > 0 && *t != nil && (*t).free.CompareAndSwap(free, free-1) {
		return append(s, v)
	}
	c := make([]T, len(s), 2*len(s)+8)
	copy(c, s)
	*t = &tail{}
	(*t).free.Store(int64(cap(c) - len(c) - 1))
	return append(c, v)
}
