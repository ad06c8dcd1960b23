package session

import "slices"

// line is a queue in which those for whom a person waits go first: of five that are taken, four are of
// people and one is not, if there are both. Each kind is first come, first served.
type line[T comparable] struct {
	people, others []T
	passed         int // people taken since the last of the others
}

// peopleFirst is how many of people are taken before one of the others.
const peopleFirst = 4

func (l *line[T]) len() int { return len(l.people) + len(l.others) }

// all lists everything that waits, in no useful order.
func (l *line[T]) all() []T { return slices.Concat(l.people, l.others) }

// add appends x. What waits already keeps its place, unless a person joins what nobody waited for.
func (l *line[T]) add(x T, waits, person bool) {
	switch {
	case !waits && person:
		l.people = append(l.people, x)
	case !waits:
		l.others = append(l.others, x)
	case person:
		if at := slices.Index(l.others, x); at >= 0 {
			l.others = slices.Delete(l.others, at, at+1)
			l.people = append(l.people, x)
		}
	}
}

// first returns what is next.
func (l *line[T]) first() (x T, ok bool) {
	from, _ := l.next()
	if len(*from) == 0 {
		return x, false
	}
	return (*from)[0], true
}

func (l *line[T]) next() (from *[]T, others bool) {
	if len(l.people) == 0 || l.passed >= peopleFirst && len(l.others) > 0 {
		return &l.others, true
	}
	return &l.people, false
}

// take removes and returns what is next.
func (l *line[T]) take() (x T, ok bool) {
	if x, ok = l.first(); !ok {
		return x, false
	}
	from, others := l.next()
	if l.passed++; others {
		l.passed = 0
	}
	var none T
	(*from)[0] = none
	*from = (*from)[1:]
	return x, true
}

// drop removes x without taking it.
func (l *line[T]) drop(x T) {
	for _, from := range []*[]T{&l.people, &l.others} {
		if at := slices.Index(*from, x); at >= 0 {
			*from = slices.Delete(*from, at, at+1)
		}
	}
}
