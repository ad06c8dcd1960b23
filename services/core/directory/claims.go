package directory

import (
	"slices"

	"skandha.dev/pkg/subject"
)

// Claimant is a session as the directory knows it: it waits in the queue, and claims slots
// for the decision that it is making. Only the session's goroutine may use it.
type Claimant struct {
	wake   func()  // called when a slot may be free, or executors have come or gone
	claims []claim // of the decision that is being made
	// owner is whose input the turn is about. Those who wait with many sessions do not hold up others.
	owner owner
	// bound maps each tool whose call must run at one instance, which had no free slot, to
	// that instance.
	bound map[string]subject.Instance
}

// NewClaimant returns a claimant; wake must not block.
func NewClaimant(wake func()) *Claimant { return &Claimant{wake: wake} }

// For sets whose input the session's turn is about, and whether a person waits for it.
func (c *Claimant) For(w subject.Writer, person bool) { c.owner = owner{w, !person} }

// Bound returns the instance whose slot the latest pick of the tool waits for, if the call
// must run there.
func (c *Claimant) Bound(tool string) subject.Instance { return c.bound[tool] }

// A claim is a slot that was picked for a decision that is not stored yet.
type claim struct {
	instance subject.Instance
	pool     string
}

// claim takes the slot for the session. The caller holds the lock.
func (d *Directory) claim(s *Claimant, i subject.Instance, pool string) {
	d.add(i, pool, 1)
	d.waiting.serve(s, true)
	s.claims = append(s.claims, claim{i, pool})
}

// Reserve counts the slot of an attempt that this core follows. The claim of its
// decision becomes that slot.
func (d *Directory) Reserve(s *Claimant, i subject.Instance, pool string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if at := slices.Index(s.claims, claim{i, pool}); at >= 0 {
		s.claims = slices.Delete(s.claims, at, at+1)
		return
	}
	d.add(i, pool, 1)
}

// Unclaim gives back the slots of a decision that was not stored. It wakes no session:
// the decision would only be retried at once, and waiting sessions retry at their next
// tick.
func (d *Directory) Unclaim(s *Claimant) {
	if len(s.claims) > 0 {
		d.giveBack(s, s.claims)
		s.claims = s.claims[:0]
	}
}

// UnclaimRest gives back the slots that a stored decision picked but does not use, and
// wakes the sessions that wait for them.
func (d *Directory) UnclaimRest(s *Claimant) {
	if len(s.claims) == 0 {
		return
	}
	d.Unclaim(s)
	d.mu.Lock()
	wake := d.wake(false)
	d.mu.Unlock()
	wakeUp(wake)
}

// GiveBack counts a slot as free again, without waking sessions.
func (d *Directory) GiveBack(s *Claimant, i subject.Instance, pool string) {
	d.giveBack(s, []claim{{i, pool}})
}

func (d *Directory) giveBack(s *Claimant, slots []claim) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.waiting.serve(s, false)
	for _, c := range slots {
		d.add(c.instance, c.pool, -1)
	}
}

// Free counts a slot as free again, and wakes the sessions that wait for it.
func (d *Directory) Free(i subject.Instance, pool string) {
	d.mu.Lock()
	d.add(i, pool, -1)
	if at := d.instances[i]; at != nil {
		at.full = slices.DeleteFunc(at.full, func(p string) bool { return p == pool })
	}
	wake := d.wake(false)
	d.mu.Unlock()
	wakeUp(wake)
}

// add changes how many of an instance's slots this core uses. The caller holds the lock.
func (d *Directory) add(i subject.Instance, pool string, n int) {
	if n < 0 {
		d.keepMine(i, pool)
	}
	p := d.reserved[i]
	if p == nil {
		p = map[string]int{}
		d.reserved[i] = p
	}
	if p[pool] += n; p[pool] <= 0 {
		delete(p, pool)
	}
	if len(p) == 0 {
		delete(d.reserved, i)
	}
}
