package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"skandha.dev/pkg/plugin"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/registry"
)

// life are the checks of the plugin's life cycle.
func (s *suite) life() []step {
	out := []step{
		{name: "heartbeat", what: "renews its lease every third of ttl_ms", run: s.beats},
		{
			name: "turn", what: "its hooks do not fail in a turn of core", skip: s.noHooks(), needs: s.hookChecks(), run: s.turn,
		},
		{name: "restart", what: "reconnects when the bus is back", needs: []string{"heartbeat"}, run: s.survives, ends: true},
		{
			name: "replicas", what: "a second process shares the work", needs: []string{"heartbeat", "restart"}, run: s.replicas,
		},
		{name: "leaves", what: "unregisters and ends on SIGTERM, and leaves nothing", run: s.leaves, ends: true},
	}
	out = append(out, s.listenerSteps()...)
	return append(
		out,
		step{name: "stays", what: "runs until it is stopped", run: s.stays, after: true},
		step{name: "subjects", what: "keeps to its own subjects", run: s.subjects, after: true},
		step{name: "replies", what: "answers once, and on the reply subject", run: s.replies, after: true},
		step{name: "protocol", what: "the bus reports no error", run: s.protocol, after: true},
	)
}

// hookChecks returns the names of all checks of hooks: a turn would show their findings
// again.
func (s *suite) hookChecks() (out []string) {
	for _, h := range s.manifest.Hooks {
		for _, one := range s.hookSteps(h) {
			out = append(out, one.name)
		}
	}
	return out
}

func (s *suite) noHooks() string {
	if len(s.manifest.Hooks) == 0 {
		return "it has no hooks"
	}
	return ""
}

// beats checks the heartbeats of two lease periods, most of which have passed already.
func (s *suite) beats(ctx context.Context, c *check) {
	began, _ := since(s.first)
	pause(ctx, time.Until(began.Add(2*s.Lease+s.Lease/5)))
	end := time.Now()
	list := s.first.tap.published(func(subj string) bool { return isVerb(subj, subject.Heartbeat) })
	last, gaps := began, []time.Duration{}
	for _, e := range list {
		gaps, last = append(gaps, e.at.Sub(last)), e.at
		s.judgeBeat(c, e)
	}
	if !c.ok() {
		return
	}
	longest := slices.Max(append(gaps, end.Sub(last)))
	slices.Sort(gaps)
	// One late heartbeat means little on a busy machine; many of them do.
	if len(gaps) == 0 || gaps[len(gaps)/2] > s.Lease/2 || longest > s.Lease {
		c.fail(fmt.Sprintf("a heartbeat every %s, a third of the lease's ttl_ms", seconds(s.Lease/3)),
			fmt.Sprintf("%d in %s, and a silence of %s", len(list), seconds(end.Sub(began)), seconds(longest)),
			"the lease says how long it holds (ttl_ms): send {instance, hash} on plugin.heartbeat.<name> every third of that")
		return
	}
	if _, times := since(s.first); times > 1 {
		c.fail("one registration", fmt.Sprintf("%d, so the lease was lost", times),
			"register again only when a heartbeat is answered with not_found")
	}
	c.note(fmt.Sprintf("%d in %s, the longest silence %s", len(list), seconds(end.Sub(began)), seconds(longest)))
}

func (s *suite) judgeBeat(c *check, e passage) {
	const advice = "see schemas/plugin/heartbeat.json; instance and hash are those of the lease"
	for _, p := range s.contract.problems("plugin/heartbeat.json", e.body) {
		c.fail("a heartbeat by schemas/plugin/heartbeat.json", quote(e.body)+": "+p, advice)
	}
	var h plugin.Heartbeat
	if json.Unmarshal(e.body, &h) == nil && h.Hash != "" && (h.Hash != s.hash || h.Instance != instanceOf(s.first)) {
		c.fail(fmt.Sprintf("instance %s and hash %s", instanceOf(s.first), s.hash), quote(e.body), advice)
	}
	if e.subject != subject.Registry(subject.Heartbeat, s.name()) {
		c.fail("the subject "+subject.Registry(subject.Heartbeat, s.name()), e.subject, advice)
	}
	s.repliable(c, e)
}

// turnText is the input of the turn: the offline provider calls a tool for it.
const turnText = "What is 2+2?"

// turn has core run a turn, and checks what its log says about the plugin.
func (s *suite) turn(ctx context.Context, c *check) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	ref := subject.Ref{Agent: "main", Session: subject.Session(fmt.Sprintf("conformance-%d", s.id()))}
	verdicts, how, err := s.rig.turn(ctx, ref, turnText)
	if err != nil {
		c.fail("the turn ends", err.Error(), "check what its hooks do at the points of a turn")
		return
	}
	asked := map[string]bool{}
	for _, v := range verdicts {
		if v.Plugin != s.name() {
			continue
		}
		asked[string(v.Point)] = true
		if v.Error != "" && v.LatencyUS > 0 { // otherwise it was not asked: its lease has ended
			c.fail("no failure of a hook", fmt.Sprintf("%s: %s", v.Point, v.Error),
				"core sends other data than the examples: check what differs")
		}
	}
	c.note("the turn " + how)
	var silent []string
	for _, h := range s.manifest.Hooks {
		if !asked[string(h.Point)] {
			silent = append(silent, string(h.Point))
		}
	}
	if len(silent) > 0 {
		c.note("not asked in this turn: " + strings.Join(silent, ", "))
	}
}

// restartPause is how long the bus is down.
const restartPause = time.Second

// survives runs restart; a plugin that did not reconnect is started again for the checks that
// follow.
func (s *suite) survives(ctx context.Context, c *check) {
	s.restart(ctx, c)
	if c.ok() {
		return
	}
	s.first.kill()
	wait, cancel := context.WithTimeout(ctx, s.Within)
	defer cancel()
	for { // the system has also lost its connections
		if _, err := s.caller.Request(wait, subject.Service(registryResponder, "status"), registryResponder,
			nil); err == nil || wait.Err() != nil {
			return
		}
		pause(wait, 50*time.Millisecond)
	}
}

// restart restarts the bus, on the same port and with its log.
func (s *suite) restart(ctx context.Context, c *check) {
	t := s.first.tap
	t.down()
	if err := s.sys.RestartBus(restartPause); err != nil {
		c.fail("the bus comes back", err.Error(), "this is a fault of the suite")
		return
	}
	mark, back := t.mark(), time.Now()
	wait, cancel := context.WithTimeout(ctx, s.Within)
	defer cancel()
	if err := t.up(wait); err != nil {
		c.fail("the bus comes back", err.Error(), "this is a fault of the suite")
		return
	}
	const advice = "when the connection ends, reconnect forever, with a pause; subscribe again, " +
		"and register or send a heartbeat at once"
	expected := fmt.Sprintf("it is back within %s", seconds(s.Within))
	_, ok := t.await(wait, s.first.gone, mark, answers(func(e passage) bool {
		return e.sent && e.carries() && (isVerb(e.subject, subject.Heartbeat) || isVerb(e.subject, subject.Register))
	}))
	if how, over := s.first.ended(); over {
		c.fail(expected, "the process ended: "+how+lastWords(s.out), advice)
		return
	}
	if !ok {
		c.fail(expected, "neither a heartbeat nor a registration that core answered", advice)
		return
	}
	if why := s.admitted(wait, s.first); why != "" {
		c.fail(expected, why, advice)
		return
	}
	q := s.easiest()
	if q == nil {
		c.note("it is back after " + seconds(time.Since(back)))
		return
	}
	var a answer
	for { // it may register before it has subscribed
		a = q.ask(ctx)
		if a.came && a.err == nil || wait.Err() != nil {
			break
		}
		pause(wait, 100*time.Millisecond)
	}
	if !s.answered(c, q.subject, a, q.limit) {
		return
	}
	c.note("it is back after " + seconds(time.Since(back)))
}

// leaves ends the replica, if there is one, and then the plugin.
func (s *suite) leaves(ctx context.Context, c *check) {
	if s.second != nil {
		s.leave(ctx, c, s.second, "the second process")
	}
	s.leave(ctx, c, s.first, "the process")
	if !c.ok() {
		return
	}
	gone := func(snap *registry.Snapshot) bool {
		p := snap.Get(s.name())
		return p == nil || p.State == plugin.Gone
	}
	if !s.awaitSnapshot(ctx, 2*s.Lease+5*time.Second, gone) {
		c.fail("nothing in the registry", fmt.Sprintf("state %s", s.view.Snapshot().Get(s.name()).State),
			"send plugin.unregister once more when all requests are answered")
	}
}

func (s *suite) leave(ctx context.Context, c *check, p *process, who string) {
	if how, over := p.ended(); over {
		s.exits = append(s.exits, how)
		return
	}
	mark, began := p.tap.mark(), time.Now()
	const advice = "on SIGTERM: request plugin.unregister.<name>, answer open requests, " +
		"request it once more, and exit with 0"
	if err := p.signal(syscall.SIGTERM); err != nil {
		c.fail("it runs until it is stopped", err.Error(), advice)
		return
	}
	wait, cancel := context.WithTimeout(ctx, s.Leave)
	defer cancel()
	select {
	case <-p.gone:
	case <-wait.Done():
		c.fail(fmt.Sprintf("%s ends within %s of SIGTERM", who, seconds(s.Leave)), "it still runs", advice)
		return
	}
	took := time.Since(began)
	last, stop := context.WithTimeout(ctx, s.Leave) // processes that it started may hold its connection
	defer stop()
	p.tap.left(last) // its last messages may still be on their way
	said := p.tap.all()[mark:]
	i := slices.IndexFunc(said,
		func(e passage) bool { return e.sent && e.carries() && isVerb(e.subject, subject.Unregister) })
	if i < 0 {
		c.fail(who+" sends plugin.unregister."+string(s.name())+" before it ends", "it ended without: "+p.how(), advice)
		return
	}
	e := said[i]
	s.repliable(c, e)
	for _, problem := range s.contract.problems("plugin/unregister.json", e.body) {
		c.fail("a request by schemas/plugin/unregister.json", quote(e.body)+": "+problem, advice)
	}
	var u plugin.Unregister
	if i := instanceOf(p); json.Unmarshal(e.body, &u) == nil && u.Instance != i {
		c.fail(who+" unregisters its own instance, "+string(i), quote(e.body), advice)
	}
	if !p.clean() {
		c.fail(who+" exits with status 0", p.how()+lastWords(s.out), advice)
	}
	if _, there := s.lease(s.name(), instanceOf(p)); there {
		c.note(fmt.Sprintf("%s ended with a draining lease; a second plugin.unregister, at the end, would release it at once",
			who))
	}
	c.note(fmt.Sprintf("%s ended after %s", who, seconds(took)))
}

// stays reports the ends that the suite did not cause.
func (s *suite) stays(_ context.Context, c *check) {
	for _, how := range s.exits {
		c.fail("it runs until it is stopped", "it ended by itself: "+how+lastWords(s.out), "see its output (--verbose)")
	}
}
