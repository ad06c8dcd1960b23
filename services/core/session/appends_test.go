package session

import "testing"

func TestTurnsComeBeforeInputs(t *testing.T) {
	g := &appendLanes{}
	in := func(ch chan struct{}) bool {
		select {
		case <-ch:
			return true
		default:
			return false
		}
	}
	enter := func(l lane, n int) (out []chan struct{}) {
		for range n {
			out = append(out, g.enter(l))
		}
		return out
	}
	count := func(list []chan struct{}) (n int) {
		for _, ch := range list {
			if in(ch) {
				n++
			}
		}
		return n
	}
	leave := func(l lane, n int) {
		for range n {
			g.leave(l, 0)
		}
	}
	want := func(what string, list []chan struct{}, n int) {
		t.Helper()
		if got := count(list); got != n {
			t.Fatalf("%d %s are admitted, want %d", got, what, n)
		}
	}
	queued := enter(queues, inputsAtOnce+5)
	want("inputs, alone,", queued, inputsAtOnce)
	steps := enter(turns, appendsAtOnce)
	want("steps of turns beside them", steps, appendsAtOnce-inputsAtOnce)
	begun := enter(starts, startsBeside+1)
	leave(queues, inputsAtOnce)
	want("steps of turns, with places kept for inputs,", steps, appendsAtOnce-startsBeside)
	want("inputs that begin a turn", begun, startsBeside)
	want("more inputs", queued, inputsAtOnce)
	last := queued[len(queued)-1]
	if !g.giveWay(queues, last) || g.giveWay(queues, last) || g.giveWay(queues, queued[0]) {
		t.Fatal("only a waiting append may give way, and only once")
	}
	leave(starts, startsBeside)
	want("inputs that begin a turn", begun, startsBeside+1)
	want("inputs beside them", queued, inputsAtOnce+queuesBeside)
	leave(starts, 1)
	leave(queues, queuesBeside)
	leave(turns, count(steps))
	leave(turns, appendsAtOnce-count(steps))
	leave(queues, len(queued)-1-inputsAtOnce-queuesBeside)
	want("inputs, but for the one that gave way,", queued, len(queued)-1)
	for l := range lanes {
		if g.lanes[l].waiting.Len() > 0 {
			t.Errorf("%d wait in lane %d", g.lanes[l].waiting.Len(), l)
		}
	}
	if !g.room() {
		t.Error("there is no room")
	}
}
