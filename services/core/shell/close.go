package shell

import (
	"encoding/json"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/core/decide"
	"skandha.dev/services/internal/executor"
)

// closeCalls asks runners to stop the calls that are about to be ended, and waits
// for their answers (rule 10). Meanwhile it extends the held deliveries. It gives up
// on a runner only once the call can no longer start there, or if it is idempotent.
// ok is false if the core ends meanwhile.
func (s *session) closeCalls(steps []decide.Step) (closings decide.Closings, ok bool) {
	if len(steps) == 0 {
		return nil, true
	}
	type reply struct {
		call   string
		answer answerMail
	}
	answers := make(chan reply, 16*len(steps))
	var cancels []func()
	defer func() {
		for _, c := range cancels {
			c()
		}
	}()
	stop := func(st decide.Step) {
		asked := executor.Answer{Call: st.Call, Attempt: st.Attempt, Instance: st.Runner}
		body, err := json.Marshal(executor.Request{
			Op: executor.OpStop, Agent: s.ref.Agent, Session: s.ref.Session, Call: st.Call, Attempt: st.Attempt,
		})
		if err != nil {
			panic(err)
		}
		c, err := s.c.caller.Send(s.ctx, subject.Executor(subject.Runner, st.Runner), string(st.Runner), nil, body,
			func(m bus.Reply) {
				select {
				case answers <- reply{st.Call, answerOf(m, asked)}:
				default:
				}
			})
		if err == nil {
			cancels = append(cancels, c)
		}
	}
	open := map[string]decide.Step{}
	for _, st := range steps {
		open[st.Call] = st
		stop(st)
	}
	out := decide.Closings{}
	keep, tick := time.NewTicker(extendAfter), time.NewTicker(askEvery)
	defer keep.Stop()
	defer tick.Stop()
	connectedFor, tries := time.Duration(0), 1
	for len(open) > 0 {
		select {
		case a := <-answers:
			if st, is := open[a.call]; is && !a.answer.gone && a.answer.answer.State.Final() && a.answer.attempt == st.Attempt {
				out[a.call] = decide.Closing{Answer: a.answer.answer}
				delete(open, a.call)
			}
		case <-s.c.ctx.Done():
			return nil, false
		case <-keep.C:
			s.takeIn()
			s.extend()
		case <-tick.C:
			if s.c.bus.Connected() {
				connectedFor += askEvery
				tries++
			} else {
				connectedFor, tries = 0, 0
			}
			for call, st := range open {
				if tries >= 3 && connectedFor >= unreachable && (st.Idempotent || time.Now().After(st.StartBy.Add(executor.Skew))) {
					out[call] = decide.Closing{Unreachable: true}
					delete(open, call)
					continue
				}
				stop(st)
			}
		}
	}
	return out, true
}

// takeIn holds deliveries that have arrived meanwhile, so that they are extended and
// not suspected as poison. They are processed when the loop continues.
func (s *session) takeIn() {
	for _, d := range s.mailbox.takeDeliveries() {
		if s.held[d.d.Seq] == nil || d.d.NumDelivered >= s.held[d.d.Seq].NumDelivered {
			s.hold(d)
		}
	}
}

// extend extends every held delivery. The loop itself calls it, or a bounded wait
// in patiently, so that a hung loop loses its deliveries (rule 3).
func (s *session) extend() {
	for seq, h := range s.held {
		h.extended = time.Now()
		if err := h.InProgress(); err != nil {
			s.c.log.Debug("extending a delivery", "session", s.ref, "cause", seq, "error", err)
		}
	}
}
