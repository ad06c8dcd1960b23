package bustest

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/test/natstest"
)

// collector remembers what was delivered.
type collector struct {
	mu   sync.Mutex
	seen map[uint64]int
	last journal.Delivery
}

func newCollector() *collector { return &collector{seen: map[uint64]int{}} }

func (c *collector) take(d journal.Delivery) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen[d.Seq]++
	c.last = d
}

func (c *collector) lastOne() journal.Delivery {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last
}

func (c *collector) times(seq uint64) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.seen[seq]
}

func cause(t testing.TB, b *journal.Journal, r subject.Ref, id, body string) uint64 {
	t.Helper()
	seq, err := b.PublishCause(natstest.Context(t), r, subject.Input, "w", id, []byte(body))
	if err != nil {
		t.Fatalf("publishing cause %s: %v", id, err)
	}
	return seq
}

func consume(t testing.TB, b *journal.Journal, c journal.ConsumeConfig, h func(journal.Delivery)) *journal.Consumption {
	t.Helper()
	k, err := b.ConsumeCauses(natstest.Context(t), c, h)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Stop)
	return k
}

func TestCausesAreDeliveredUntilAcknowledged(t *testing.T) {
	b, c := start(t), newCollector()
	k := consume(t, b, journal.ConsumeConfig{AckWait: 200 * time.Millisecond}, func(d journal.Delivery) {
		c.take(d)
		if d.NumDelivered >= 3 {
			_ = d.Ack()
		}
	})
	seq := cause(t, b, ref("one"), "a", "hello")
	natstest.Eventually(t, "three deliveries", func() bool { return c.times(seq) >= 3 })
	if d := c.lastOne(); d.Subject != ref("one").Cause(subject.Input, "w") || string(d.Data) != "hello" ||
		d.Time.IsZero() || d.Header.Get("traceparent") == "" {
		t.Errorf("delivery: %+v", d)
	}
	natstest.Eventually(t, "the floor to rise", func() bool {
		floor, err := k.AckFloor(natstest.Context(t))
		return err == nil && floor == seq
	})
	if _, err := b.AppendCommit(natstest.Context(t), ref("one"), []byte("x"), 0); err != nil {
		t.Fatal(err)
	}
	after := cause(t, b, ref("one"), "b", "again")
	natstest.Eventually(t, "the next cause", func() bool { return c.times(after) > 0 })
	taken := c.times(seq) // on a machine that stalls, once more while the acknowledgement was on its way
	natstest.Eventually(t, "the next cause twice more", func() bool { return c.times(after) >= 3 })
	if n := c.times(seq); n != taken || c.times(seq+1) != 0 {
		t.Errorf("what was acknowledged after %d deliveries was delivered %d times, the commit %d times", taken, n,
			c.times(seq+1))
	}
}

// The one that nobody keeps is the clock: when it comes again, AckWait is over,
// and the other one was delivered before it. A machine that stalls for longer
// than AckWait would not keep the other one either.
func TestInProgressKeepsADelivery(t *testing.T) {
	b, c := start(t), newCollector()
	var kept atomic.Pointer[journal.Delivery]
	consume(t, b, journal.ConsumeConfig{AckWait: 5 * time.Second}, func(d journal.Delivery) {
		c.take(d)
		if string(d.Data) == "kept" {
			kept.Store(&d)
		}
	})
	one := cause(t, b, ref("one"), "a", "kept")
	two := cause(t, b, ref("one"), "b", "left")
	natstest.Eventually(t, "the other one again", func() bool {
		if d := kept.Load(); d != nil {
			_ = d.InProgress()
		}
		return c.times(two) > 1
	})
	if n := c.times(one); n != 1 {
		t.Errorf("%d deliveries of what was kept, want 1", n)
	}
}

func TestNakDeliversAgain(t *testing.T) {
	b, c := start(t), newCollector()
	consume(t, b, journal.ConsumeConfig{AckWait: time.Minute}, func(d journal.Delivery) {
		c.take(d)
		switch d.NumDelivered {
		case 1:
			_ = d.Nak(0)
		case 2:
			_ = d.Nak(20 * time.Millisecond)
		default:
			_ = d.Ack()
		}
	})
	seq := cause(t, b, ref("one"), "a", "x")
	natstest.Eventually(t, "three deliveries", func() bool { return c.times(seq) == 3 })
}

func TestReplicasShareTheConsumer(t *testing.T) {
	s := natstest.Start(t)
	c := newCollector()
	var counts [3]atomic.Int64
	var first *journal.Journal
	for i := range counts {
		b := natstest.Connect(t, s)
		if first == nil {
			first = b
		}
		consume(t, b, journal.ConsumeConfig{AckWait: time.Minute}, func(d journal.Delivery) {
			c.take(d)
			counts[i].Add(1)
			_ = d.Ack()
		})
	}
	var last uint64
	natstest.Eventually(t, "each replica to get its share", func() bool { // as soon as it has asked
		for range 100 {
			last = cause(t, first, ref("one"), "", "x")
		}
		return counts[0].Load() > 0 && counts[1].Load() > 0 && counts[2].Load() > 0
	})
	for seq := range last {
		natstest.Eventually(t, "every cause", func() bool { return c.times(seq+1) > 0 })
	}
	for seq := range last {
		if n := c.times(seq + 1); n != 1 {
			t.Errorf("cause %d was delivered %d times", seq+1, n)
		}
	}
}

func TestDeletedConsumerIsMadeAgainFromTheFloor(t *testing.T) {
	b, c := start(t), newCollector()
	var floor atomic.Uint64
	k := consume(t, b, journal.ConsumeConfig{AckWait: time.Minute, Floor: floor.Load},
		func(d journal.Delivery) { c.take(d); _ = d.Ack() })
	for round := range 3 {
		done := cause(t, b, ref("one"), fmt.Sprint("done", round), "x")
		natstest.Eventually(t, "the cause", func() bool { return c.times(done) == 1 })
		open := cause(t, b, ref("one"), fmt.Sprint("open", round), "x")
		natstest.Eventually(t, "the cause", func() bool { return c.times(open) == 1 })
		floor.Store(done)
		if err := b.JetStream().DeleteConsumer(natstest.Context(t), bus.StreamSessions, "core"); err != nil {
			t.Fatal(err)
		}
		natstest.Eventually(t, "everything above the floor again", func() bool { return c.times(open) == 2 })
		if c.times(done) != 1 {
			t.Errorf("round %d: cause %d is below the floor and came again", round, done)
		}
		floor.Store(open)
	}
	if k.Healed() == 0 {
		t.Error("the consumption does not know that it started anew")
	}
}

func TestConsumptionSurvivesTheBus(t *testing.T) {
	for _, end := range []struct {
		name string
		end  func(*natstest.Process)
	}{{"killed", (*natstest.Process).Kill}, {"stopped", (*natstest.Process).Stop}} {
		t.Run(end.name, func(t *testing.T) {
			p := natstest.StartProcess(t, "", 0)
			b, c := natstest.ConnectURL(t, p.URL()), newCollector()
			var floor atomic.Uint64
			consume(t, b, journal.ConsumeConfig{Floor: floor.Load}, func(d journal.Delivery) {
				c.take(d)
				if string(d.Data) == "ack" {
					_ = d.Ack()
				}
			})
			for round := range 3 {
				acked := cause(t, b, ref("one"), fmt.Sprint("a", round), "ack")
				open := cause(t, b, ref("one"), fmt.Sprint("o", round), "hold")
				natstest.Eventually(t, "the causes", func() bool { return c.times(acked) > 0 && c.times(open) > 0 })
				floor.Store(acked)
				before := c.times(open)
				end.end(p)
				p.Restart()
				restarted := time.Now()
				natstest.Eventually(t, "what was not acknowledged", func() bool { return c.times(open) > before })
				next := cause(t, b, ref("one"), fmt.Sprint("n", round), "ack")
				natstest.Eventually(t, "what came after the restart", func() bool { return c.times(next) > 0 })
				t.Logf("round %d: healed %v after the server was back", round, time.Since(restarted).Round(time.Millisecond))
				floor.Store(next)
			}
		})
	}
}

func TestConsumptionSurvivesTheStreamBeingAway(t *testing.T) {
	b, c := start(t), newCollector()
	consume(t, b, journal.ConsumeConfig{}, func(d journal.Delivery) { c.take(d); _ = d.Ack() })
	if err := b.JetStream().DeleteStream(natstest.Context(t), bus.StreamSessions); err != nil {
		t.Fatal(err)
	}
	natstest.EnsureStreams(t, b)
	seq := cause(t, b, ref("one"), "a", "x")
	natstest.Eventually(t, "a cause of the new stream", func() bool { return c.times(seq) > 0 })
}

func TestForeignConsumerIsRefused(t *testing.T) {
	ctx, b := natstest.Context(t), start(t)
	_, err := b.JetStream().CreateConsumer(ctx, bus.StreamSessions, jetstream.ConsumerConfig{
		Durable: "core", FilterSubject: subject.AllCommits, AckPolicy: jetstream.AckExplicitPolicy,
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.ConsumeCauses(ctx, journal.ConsumeConfig{}, func(journal.Delivery) {}); err == nil ||
		!strings.Contains(err.Error(), "filter") {
		t.Fatalf("%v, want an error that names the filter", err)
	}
}

func TestChangedAckWaitIsTakenOver(t *testing.T) {
	b := start(t)
	consume(t, b, journal.ConsumeConfig{AckWait: time.Minute}, func(journal.Delivery) {}).Stop()
	c := newCollector()
	seq := cause(t, b, ref("one"), "a", "x")
	consume(t, b, journal.ConsumeConfig{AckWait: 100 * time.Millisecond}, c.take)
	natstest.Eventually(t, "a redelivery", func() bool { return c.times(seq) > 1 })
}

func TestAckFloorOfNoConsumer(t *testing.T) {
	b := start(t)
	k := consume(t, b, journal.ConsumeConfig{}, func(journal.Delivery) {})
	k.Stop()
	if err := b.JetStream().DeleteConsumer(natstest.Context(t), bus.StreamSessions, "core"); err != nil {
		t.Fatal(err)
	}
	if _, err := k.AckFloor(natstest.Context(t)); !errors.Is(err, bus.ErrNotFound) {
		t.Fatalf("%v, want ErrNotFound", err)
	}
}

// forged are headers that the client libraries take for the server's own words.
var forged = []nats.Header{
	{"Status": {"409"}, "Description": {"Consumer Deleted"}},
	{"Status": {"503"}},
	{"Status": {"100"}, "Description": {"Idle Heartbeat"}},
	{"Status": {"404"}, "Description": {"No Messages"}},
	{"Status": {"204"}, "Description": {"EOB"}, "Nats-Num-Pending": {"0"}},
	{
		"Nats-Sequence": {"1"}, "Nats-Subject": {ref("one").Commit()}, "Nats-Time-Stamp": {"2001-01-01T00:00:00Z"},
		"Nats-Last-Sequence": {"7"},
	},
	{"nats-sequence": {"1"}},
}

func TestStoredHeadersCannotActAsTheServer(t *testing.T) {
	ctx, s := natstest.Context(t), natstest.Start(t, natstest.WithTCP())
	b, c := natstest.Connect(t, s), newCollector()
	consume(t, b, journal.ConsumeConfig{}, func(d journal.Delivery) { c.take(d); _ = d.Ack() })
	subj := ref("one").Cause(subject.Input, "mallory")
	var want []uint64
	for _, h := range forged {
		ack, err := b.JetStream().PublishMsg(ctx, &nats.Msg{Subject: subj, Header: h})
		if err != nil {
			t.Fatalf("%v: %v", h, err)
		}
		want = append(want, ack.Sequence)
	}
	want = append(want, rawPublish(t, b, s.ClientURL(), subj, "NATS/1.0\r\nno colon here\r\n\r\n"))
	want = append(want, rawPublish(t, b, s.ClientURL(), subj, "NATS/1.0 204 EOB\r\nNats-Num-Pending: 0\r\n\r\n"))
	want = append(want, cause(t, b, ref("one"), "honest", "x"))

	for _, seq := range want {
		natstest.Eventually(t, fmt.Sprintf("cause %d", seq), func() bool { return c.times(seq) > 0 })
	}
	var got []uint64
	for m, err := range b.Messages(ctx, ref("one"), 0) {
		if err != nil {
			t.Fatal(err)
		}
		if m.Time.Year() < 2020 || !strings.HasPrefix(m.Subject, "agent.ada.one.sense.input.") {
			t.Errorf("message %d: %+v", m.Seq, m)
		}
		got = append(got, m.Seq)
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("messages %v, want %v", got, want)
	}
	after := uint64(0)
	for _, seq := range want {
		m, ok, err := b.NextCause(ctx, ref("one"), after, seq)
		if err != nil || !ok || m.Seq != seq || m.Time.Year() < 2020 {
			t.Errorf("next cause after %d: %+v, %v, %v, want %d", after, m, ok, err, seq)
		}
		after = seq
	}
}

// rawPublish stores a message whose header no client library would write.
func rawPublish(t *testing.T, b *journal.Journal, url, subj, header string) uint64 {
	t.Helper()
	var d net.Dialer
	conn, err := d.DialContext(natstest.Context(t), "tcp", strings.TrimPrefix(url, "nats://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	last := func() uint64 {
		s, err := b.JetStream().Stream(natstest.Context(t), bus.StreamSessions)
		if err != nil {
			t.Fatal(err)
		}
		return s.CachedInfo().State.LastSeq
	}
	before := last()
	if _, err := fmt.Fprintf(conn, "CONNECT {\"headers\":true,\"verbose\":false}\r\nHPUB %s %d %d\r\n%s\r\n", subj,
		len(header), len(header), header); err != nil {
		t.Fatal(err)
	}
	natstest.Eventually(t, "the raw message to be stored", func() bool { return last() > before })
	return last()
}

func TestReplicasWithDifferentFloorsMakeOneConsumer(t *testing.T) {
	s, c := natstest.Start(t), newCollector()
	b := natstest.Connect(t, s)
	var floors [3]atomic.Uint64
	for i := range floors {
		consume(t, natstest.Connect(t, s), journal.ConsumeConfig{Floor: floors[i].Load},
			func(d journal.Delivery) { c.take(d); _ = d.Ack() })
	}
	for round := range uint64(5) {
		seq := cause(t, b, ref("one"), "", "x")
		natstest.Eventually(t, "the cause", func() bool { return c.times(seq) > 0 })
		for i := range floors {
			floors[i].Store(min(round, uint64(i)))
		}
		if err := b.JetStream().DeleteConsumer(natstest.Context(t), bus.StreamSessions, "core"); err != nil {
			t.Fatal(err)
		}
		natstest.Eventually(t, "the cause again", func() bool { return c.times(seq) > 1 })
	}
}

func TestAckFloorStartsAtTheFloor(t *testing.T) {
	b := start(t)
	var last uint64
	for range 5 {
		last = cause(t, b, ref("one"), "", "x")
	}
	k := consume(t, b, journal.ConsumeConfig{Floor: func() uint64 { return last - 1 }}, func(journal.Delivery) {})
	if floor, err := k.AckFloor(natstest.Context(t)); err != nil || floor != last-1 {
		t.Errorf("floor %d, %v, want %d", floor, err, last-1)
	}
}

// Without room a few causes come now and then, and with it all of them.
func TestWithoutRoomOnlyAFewCausesCome(t *testing.T) {
	b, all := natstest.Connect(t, natstest.Start(t)), newCollector()
	const n = 200
	for i := range n {
		cause(t, b, ref("one"), fmt.Sprint(i), "x")
	}
	count := func() int {
		all.mu.Lock()
		defer all.mu.Unlock()
		return len(all.seen)
	}
	var room atomic.Bool
	most := 0 // that had come when there was no room
	consume(t, b, journal.ConsumeConfig{Room: func() bool {
		if !room.Load() {
			most = count()
		}
		return room.Load()
	}}, func(d journal.Delivery) {
		all.take(d)
		if err := d.Ack(); err != nil {
			t.Error(err)
		}
		if count() > 40 { // two or three small batches
			room.Store(true)
		}
	})
	natstest.Eventually(t, "all of them", func() bool { return count() == n })
	if most == 0 || most > 60 {
		t.Errorf("%d of %d causes had come without room, want a few", most, n)
	}
}
