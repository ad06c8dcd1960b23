package senses

import "time"

// Judged is what is listed of a report of an age.
func Judged(r Report, s *Switch, age time.Duration) Listed {
	l := Listed{Report: r, Switch: s, Heard: time.Unix(1764115200, 0).Add(-age)}
	l.judge(age)
	return l
}
