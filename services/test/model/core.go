package model

// core is one core about to take a step. Its Core may be ahead of the state: an idle
// core that takes a delivery looks and decides in one step.
type core struct {
	*world
	Core
	id uint8
}

// core adds the steps that core id may take next.
func (w *world) core(id uint8) {
	c := core{world: w, Core: w.s.Cores[id], id: id}
	if c.Phase == Idle {
		c.receive()
		c.checkpoint()
		return
	}
	if w.s.Left.Crashes > 0 {
		n := c.become(Core{})
		n.Left.Crashes--
		c.emit(n, crashes[c.Phase])
	}
	switch c.Phase {
	case Looking:
		c.look()
	case Closing:
		c.closeOn()
	case Publishing:
		c.publish()
	case Dispatching:
		c.dispatch()
	case ArmingLate:
		n := c.become(Core{})
		n.TimerSet = true
		c.emit(n, "timer scheduled after the ack")
	}
}

// crashes describes when a core crashed, by phase.
var crashes = [...]string{
	Looking:     "CRASH",
	Closing:     "CRASH between asking runners to stop",
	Publishing:  "CRASH before its commit is stored",
	Dispatching: "CRASH before its dispatch",
	ArmingLate:  "CRASH before its timer is scheduled",
}

// become returns the state with the core's memory replaced by k.
func (c *core) become(k Core) State {
	n := *c.s
	n.Cores[c.id] = k
	return n
}

func (c *core) emit(n State, format string, args ...uint8) {
	c.emitPlan(n, Commit{}, format, args...)
}

func (c *core) emitPlan(n State, plan Commit, format string, args ...uint8) {
	l := label{core: c.id + 1, delivery: c.Delivery, format: format, plan: plan}
	l.n = copy(l.args[:], args)
	c.record(n, l)
}

// receive takes a delivery. Any core may take any unacked cause at any time:
// redelivery, stalled cores and two drivers at once need no budget (rule 3).
func (c *core) receive() {
	counted := c.countsDeliveries()
	if !counted && c.id > 0 && c.s.Cores[0].Phase == Idle {
		return // core 0 does the same
	}
	for at := uint8(1); at <= c.s.Len; at++ {
		if !c.s.isCause(at) || c.s.acked(at) || counted && c.s.purged(at) {
			continue // a purged one that is not counted was delivered before
		}
		k := core{world: c.world, Core: Core{Phase: Looking, Delivery: at}, id: c.id}
		if !counted {
			k.look()
			k.lookStale()
			continue
		}
		n := k.become(k.Core)
		if at == 1 && n.Deliveries < 3 {
			n.Deliveries++
		}
		k.emit(n, "delivered")
	}
}

// look decides on the current log, or on a later one. A copy that does not include the
// core's delivery yet is not enough to decide anything (rule 5). The core first processes
// the causes up to that delivery, in log order (rule 2), then drives, then acks.
func (c *core) look() {
	if c.s.purged(c.Delivery) {
		c.ackDelivery("the cause is gone from the log: acks") // whatever state the core has (rule 17)
	}
	if c.broken(PoisonByDeliveries) && c.Delivery == 1 && c.s.Deliveries >= 3 &&
		c.f.Cursor >= 1 && c.f.Phase != NoTurn {
		c.propose(*c.s, Commit{Kind: TurnPoison}, "third delivery")
		return
	}
	cause := c.nextCause()
	if cause != 0 && c.broken(LagIsDeletion) {
		n := c.become(Core{})
		n.ack(c.Delivery)
		c.emit(n, "a lagging copy does not contain the cause: acks")
	}
	if cause == c.Delivery && c.broken(StaleVerdict) && c.staleVerdict() {
		n := c.become(Core{})
		n.ack(c.Delivery)
		c.emit(n, "a fold without the last commit shows no effect: acks")
	}
	if cause != 0 {
		c.process(cause)
		return
	}
	c.driveOrAck()
}

// nextCause returns the first cause up to the delivery that has an effect, or 0.
// The others need no commit (rule 5).
func (c *core) nextCause() uint8 {
	for at := c.f.Cursor + 1; at <= c.Delivery; at++ {
		if c.s.isCause(at) && !c.s.purged(at) && c.hasEffect(c.s, c.f, at, c.Delivery) {
			return at
		}
	}
	return 0
}

func (c *core) staleVerdict() bool {
	last := c.s.lastCommit()
	return last > 0 && !c.hasEffect(c.s, c.fold(c.s, last-1), c.Delivery, c.Delivery)
}

// process commits a cause, after closing the calls that it ends.
func (c *core) process(cause uint8) {
	e := c.s.Log[cause-1]
	switch {
	case c.suspected(cause) && (c.ended() >= poisonAt || c.broken(PoisonUnbegun)):
		c.propose(*c.s, Commit{Kind: CausePoison, Cause: cause}, "cores died of #%d again and again", cause)
	case c.suspected(cause) && !c.Begun:
		c.propose(*c.s, Commit{Kind: Begun, Cause: cause}, "begins to decide #%d", cause)
	case c.cfg.Poison && e.Kind == InputEntry && e.Input == 1:
		c.emit(c.become(Core{}), "dies of #%d", cause)
	case c.closesCalls(e) && !c.broken(CancelWithoutAsking):
		c.closeWith(cause)
	default:
		c.propose(*c.s, causeDone(cause, c.Delivery), "cause #%d", cause)
	}
	if c.suspected(cause) && c.Begun {
		c.handBack(cause)
	}
}

// handBack is a core that is stopped before it has decided what it has begun. It costs as much as
// a crash.
func (c *core) handBack(cause uint8) {
	if c.broken(HandsBackMarked) {
		c.emit(c.become(Core{}), "is stopped: hands #%d back", cause)
	} else if n := *c.s; n.Left.Crashes > 0 {
		n.Left.Crashes--
		c.propose(n, Commit{Kind: Survived, Cause: cause}, "is stopped: will hand #%d back", cause)
	}
}

// The limits of rule 13, in this world.
const (
	suspectAt = 2 // deliveries of a cause without a commit
	poisonAt  = 2 // processes that have ended while they decided it
)

// suspected reports whether a core must store that it begins before it decides the
// cause (rule 13). Deliveries alone prove nothing: a broken connection or a stalled core
// causes them without any decision.
func (c *core) suspected(cause uint8) bool {
	return c.countsDeliveries() && !c.broken(PoisonByDeliveries) && cause == 1 && c.s.Deliveries >= suspectAt
}

// ended counts the marks of cores that do not live any more. The others announce themselves, so
// that the mark of one that stalls, or decides concurrently, does not count.
func (c *core) ended() (n uint8) {
	n = c.f.Begun
	if c.broken(CountTheLiving) {
		return n
	}
	for i := range c.s.Cores {
		k := &c.s.Cores[i]
		if uint8(i) == c.id {
			k = &c.Core
		}
		if k.Begun && n > 0 {
			n--
		}
	}
	return n
}

// driveOrAck acks the delivery unless rule 4 forbids it.
func (c *core) driveOrAck() {
	drives := c.f.Driver == c.Delivery
	if c.broken(NoDriver) {
		drives = !c.Handed // any holder of a cause drives, unless the cause was queued into a driven session
	}
	if c.broken(AckEarly) || c.broken(PausedAcks) && c.f.Paused {
		drives = false
	}
	switch {
	case !drives || c.f.Phase == NoTurn || c.f.Phase == Held:
		c.ackDelivery("neither driver nor anything to drive: acks")
	case c.f.Phase == Parked && c.broken(AckTimerLate):
		if c.s.TimerSet {
			c.ackDelivery("the timer is scheduled: acks")
			return
		}
		n := c.become(Core{Phase: ArmingLate})
		n.ack(c.Delivery)
		c.emit(n, "acks before the timer is scheduled")
	default:
		c.drive()
	}
}

func (c *core) ackDelivery(why string) {
	n := c.become(Core{})
	n.ack(c.Delivery)
	c.emit(n, why)
}
