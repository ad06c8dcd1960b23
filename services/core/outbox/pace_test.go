package outbox

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/test/natstest"
)

// gateways are the listeners that run. Nothing asks them here.
type gateways struct{ Caller }

func (gateways) Delivers(string) (time.Duration, bool) { return time.Minute, true }

// paced is an outbox whose time the test sets, and what it logs.
type paced struct {
	*Outbox
	at  time.Time
	log bytes.Buffer
}

func newPaced(b *journal.Journal) *paced {
	p := &paced{at: time.Now()}
	p.Outbox = New(Config{Bus: b, Log: slog.New(slog.NewTextHandler(&p.log, nil)), Caller: gateways{}})
	p.now, p.done = func() time.Time { return p.at }, 1<<32
	return p
}

// holds adds waiting messages, one for each destination.
func (p *paced) holds(t *testing.T, via subject.Writer, to ...string) {
	t.Helper()
	var c journal.Change
	for i, d := range to {
		value, err := json.Marshal(entry{
			Via: via, Delivery: tool.Delivery{Kind: tool.KindAnswer, To: d, Text: "hi"}, State: coreapi.OutboxWaiting, Stored: p.at,
		})
		if err != nil {
			t.Fatal(err)
		}
		c.Entries = append(c.Entries, journal.Entry{Key: newID(via, d, uint64(i+1), 0), Value: value, Revision: uint64(i + 1)})
	}
	p.take(c)
}

// begins returns the destinations that are delivered to now.
func (p *paced) begins() (out []*entry) {
	out, _ = p.due()
	return out
}

func names(prefix string, n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprint(prefix, i))
	}
	return out
}

// While the bus is away the state of the entry stays what it was, and nothing but the pause keeps it
// from being attempted again at once.
func TestAnOutageOfTheBusIsWaitedForAndLoggedOnce(t *testing.T) {
	b := natstest.Connect(t, natstest.Start(t))
	p := newPaced(b)
	p.holds(t, "phone", "ann", "bob")
	b.Close()
	attempts := 0
	for range 60 * int(time.Second/tick) { // a minute
		for _, e := range p.begins() {
			attempts++
			err := p.attempt(t.Context(), e)
			if err == nil {
				t.Fatal("a closed bus has stored an entry")
			}
			p.ended(e, err)
		}
		p.at = p.at.Add(tick)
	}
	if attempts < 8 || attempts > 14 {
		t.Errorf("%d attempts for two destinations in a minute", attempts)
	}
	if n := strings.Count(p.log.String(), "\n"); n != 1 {
		t.Errorf("%d lines are logged:\n%s", n, p.log.String())
	}
	p.take(journal.Change{Reset: true}) // the bus is back
	p.holds(t, "phone", "ann", "bob")
	all := p.begins()
	if len(all) != 2 {
		t.Fatalf("%d deliveries begin once the bus is back", len(all))
	}
	p.ended(all[0], nil)
	if !strings.Contains(p.log.String(), fmt.Sprintf("failed_attempts=%d", attempts)) {
		t.Errorf("the end of the outage is not logged:\n%s", p.log.String())
	}
}

// What is given up is logged and counted once that is stored.
func TestAMessageThatCannotBeBuriedIsNotReportedAsDead(t *testing.T) {
	b := natstest.Connect(t, natstest.Start(t))
	p := newPaced(b)
	p.holds(t, "phone", "ann")
	b.Close()
	p.at = p.at.Add(2 * defaultGiveUp)
	for _, e := range p.begins() {
		if err := p.attempt(t.Context(), e); err == nil {
			t.Error("a closed bus has stored an entry")
		}
	}
	if n := p.Counters()["outbox_dead"]; n != 0 || p.log.Len() > 0 {
		t.Errorf("%d are dead, and this is logged:\n%s", n, p.log.String())
	}
}

func TestDestinationsThatHangDoNotHoldUpTheOthers(t *testing.T) {
	p := newPaced(nil)
	p.holds(t, "phone", names("hangs", 40)...)
	hanging := p.begins()
	if len(hanging) != atOnce {
		t.Fatalf("%d deliveries begin, want %d", len(hanging), atOnce)
	}
	p.holds(t, "room", "other")
	if n := len(p.begins()); n != 1 {
		t.Errorf("%d deliveries of another listener begin", n)
	}
	for range 3 { // until all 40 hang
		p.at = p.at.Add(patience + 1)
		hanging = append(hanging, p.begins()...)
	}
	if len(hanging) != 40 {
		t.Fatalf("%d deliveries hang, want 40", len(hanging))
	}
	p.holds(t, "phone", "works")
	if n := len(p.begins()); n != 1 {
		t.Errorf("%d deliveries begin while 40 hang", n)
	}
	for i, e := range hanging { // some are tried again, others are given up and have more
		e.Attempts = 1
		if i%2 == 0 {
			e.State = coreapi.OutboxDead
		}
		p.ended(e, nil)
	}
	if n := len(p.begins()); n != lateAtOnce {
		t.Errorf("%d destinations that failed are tried again at once, want %d", n, lateAtOnce)
	}
	p.holds(t, "phone", names("new", atOnce)...)
	if n := len(p.begins()); n != atOnce-1 { // one is being delivered
		t.Errorf("%d deliveries begin beside those that failed, want %d", n, atOnce-1)
	}
}

func TestDeliveriesOfAListenerHaveALimit(t *testing.T) {
	p := newPaced(nil)
	p.holds(t, "phone", names("hangs", 2*coreapi.DeliveriesAtOnce)...)
	begun := 0
	for range 10 {
		begun += len(p.begins())
		p.at = p.at.Add(patience + 1)
	}
	if begun != coreapi.DeliveriesAtOnce {
		t.Errorf("%d deliveries are in progress, want %d", begun, coreapi.DeliveriesAtOnce)
	}
}
