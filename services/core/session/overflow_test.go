package session

import (
	"fmt"
	"testing"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/journal"
)

// Of five sessions that are opened, four are those of people, and what nobody waits for does not
// starve. A session that a person joins is one of people.
func TestSessionsOfPeopleAreOpenedFirst(t *testing.T) {
	l := newOverflow()
	seq := uint64(0)
	put := func(session string, w subject.Writer) {
		seq++
		l.put(delivery{
			Delivery: journal.Delivery{StoredMsg: bus.StoredMsg{Seq: seq, Data: []byte(`{"text":"x","source":"s"}`)}},
			at: subject.CauseSubject{
				Ref: subject.Ref{Agent: "main", Session: subject.Session(session)}, Kind: subject.Input, Writer: w,
			},
		})
	}
	for i := range 6 {
		put(fmt.Sprintf("timer-%d", i), subject.ScheduleWriter)
	}
	for i := range 6 {
		put(fmt.Sprintf("person-%d", i), "ui-ann")
	}
	put("timer-5", "ui-ann")
	var got []subject.Session
	for l.len() > 0 {
		got = append(got, l.open()[0].at.Session)
	}
	want := "[person-0 person-1 person-2 person-3 timer-0 person-4 person-5 timer-5 timer-1 timer-2 timer-3 timer-4]"
	if fmt.Sprint(got) != want {
		t.Errorf("opened %v, want %v", got, want)
	}
	if l.open() != nil || len(l.held) > 0 {
		t.Errorf("%d are still held", len(l.held))
	}
}
