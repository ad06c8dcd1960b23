package decide

import "sync/atomic"

// tail guards the free end of an array that several states share. A session's states
// form a sequence, so the newest can nearly always append in place. Copying the window
// for every commit would cost more than deciding.
type tail struct{ free atomic.Int64 }

// grow appends v. Of all the states that share the array of s, the first to claim an
// element may write it; any other state copies the array. No state reads past its own
// length, so the contents of a state never change.
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
