package plugincall_test

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/plugincall"
	"skandha.dev/services/test/natstest"
	"skandha.dev/services/test/plugincalltest"
)

// memory is a replica that remembers its requests, in as few lines as a plugin in any
// language needs: it recognizes a request that it got before.
type memory struct {
	nc *nats.Conn

	mu      sync.Mutex
	ran     int
	answers map[string][]byte // nil while it runs
	replies []string          // subjects
	asked   chan struct{}     // it was asked
}

// remembering subscribes as the replica, and starts requests without finishing them.
func remembering(t *testing.T, nc *nats.Conn, replica subject.Instance) *memory {
	t.Helper()
	m := &memory{nc: nc, answers: map[string][]byte{}, asked: make(chan struct{}, 64)}
	_, err := nc.Subscribe(subject.Replica(subj, replica), func(q *nats.Msg) {
		m.mu.Lock()
		answer, known := m.answers[string(q.Data)]
		if !known {
			m.ran++
			m.answers[string(q.Data)] = nil
		}
		m.replies = append(m.replies, q.Reply)
		m.mu.Unlock()
		if answer != nil {
			_ = nc.Publish(q.Reply, answer)
		}
		m.asked <- struct{}{}
	})
	if err == nil {
		err = nc.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// finish provides an answer; unsent means that it is lost in transit.
func (m *memory) finish(answer string, unsent bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.answers["hello"] = []byte(answer)
	for _, to := range m.replies {
		if !unsent {
			_ = m.nc.Publish(to, []byte(answer))
		}
	}
}

func (m *memory) count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ran
}

// rig is a bus that can be killed, with an asker and a plugin on it.
func rig(t *testing.T) (*natstest.Process, *world, *nats.Conn) {
	t.Helper()
	p := natstest.StartProcess(t, "", 0)
	b := natstest.ConnectURL(t, p.URL())
	w := &world{t: t, bus: b}
	w.manifest.Name, w.manifest.Version = "p", "1.0.0"
	var err error
	if w.asker, err = plugincall.New(b, viewOf(w.manifest), plugincall.Grace(grace)); err != nil {
		t.Fatal(err)
	}
	nc, err := nats.Connect(p.URL(), nats.MaxReconnects(-1), nats.ReconnectWait(grace))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return p, w, nc
}

func (w *world) replicas() plugincall.Request {
	r := w.request()
	r.Replicas = true
	return r
}

// The answer was lost with the bus. It is fetched as soon as the bus is back, although
// the request must not run twice and no deadline is near.
func TestAnAnswerThatWentDownWithTheBusIsFetched(t *testing.T) {
	p, w, nc := rig(t)
	m := remembering(t, nc, "one")
	c := w.ask(natstest.Context(t), w.replicas())
	<-m.asked
	p.Kill()
	m.finish("done meanwhile", true)
	p.Restart()
	if o := w.await(c); o.body != "done meanwhile" {
		t.Fatalf("got %+v", o)
	}
	if n := m.count(); n != 1 {
		t.Errorf("it ran %d times", n)
	}
}

// A replica that is asked again while it still works does not start again.
func TestWhatStillRunsAfterABounceRunsOnce(t *testing.T) {
	p, w, nc := rig(t)
	m := remembering(t, nc, "one")
	c := w.ask(natstest.Context(t), w.replicas())
	<-m.asked
	p.Restart()
	<-m.asked // again
	m.finish("at last", false)
	if o := w.await(c); o.body != "at last" {
		t.Fatalf("got %+v", o)
	}
	if n := m.count(); n != 1 {
		t.Errorf("it ran %d times", n)
	}
}

// Only the plugin's connection is lost, and the answer with it. The asker notices
// nothing, and asks again after a while.
func TestAnAnswerThatWentDownWithThePluginsConnectionIsFetched(t *testing.T) {
	w := start(t)
	m := remembering(t, plugincalltest.Client(t, w.server), "two")
	c := w.ask(natstest.Context(t), w.replicas())
	<-m.asked
	m.finish("it was lost", true)
	if o := w.await(c); o.body != "it was lost" {
		t.Fatalf("got %+v", o)
	}
	if n := m.count(); n != 1 {
		t.Errorf("it ran %d times", n)
	}
}

// Replicas that remember are asked first, and the queue group if there is none.
func TestAReplicaThatRemembersIsAskedAsSuch(t *testing.T) {
	w := start(t)
	_, plain := w.silent()
	c := w.ask(natstest.Context(t), w.replicas())
	q := <-plain
	if err := q.Respond([]byte("plain")); err != nil {
		t.Fatal(err)
	}
	if o := w.await(c); o.body != "plain" {
		t.Fatalf("got %+v", o)
	}
	m := remembering(t, plugincalltest.Client(t, w.server), "two")
	c = w.ask(natstest.Context(t), w.replicas())
	<-m.asked
	m.finish("remembered", false)
	if o := w.await(c); o.body != "remembered" || len(plain) > 0 {
		t.Fatalf("got %+v, %d others were asked", o, len(plain))
	}
}

// The replica that has the request dies. A repeatable request goes to another replica
// at once; the outcome of any other is unknown.
func TestTheReplicaThatHasItDies(t *testing.T) {
	for _, repeatable := range []bool{true, false} {
		w := start(t)
		plugincalltest.Core(t, w.server)
		first := plugincalltest.Client(t, w.server)
		m := remembering(t, first, "one")
		r := w.replicas()
		r.Repeatable = repeatable
		c := w.ask(natstest.Context(t), r)
		<-m.asked
		other := remembering(t, plugincalltest.Client(t, w.server), "two")
		first.Close()
		w.ended(1, "one")
		if !repeatable {
			if o := w.await(c); !errors.Is(o.err, plugincall.ErrLost) || other.count() != 0 {
				t.Fatalf("got %+v, and another one was asked %d times", o, other.count())
			}
			continue
		}
		<-other.asked
		other.finish("by another", false)
		if o := w.await(c); o.body != "by another" {
			t.Fatalf("got %+v", o)
		}
	}
}

// A replica that died without leaving keeps its lease for a while. The server knows
// sooner that it does not listen.
func TestAReplicaThatDiedIsNotWaitedForUntilItsLeaseEnds(t *testing.T) {
	t.Parallel()
	w := start(t)
	nc := plugincalltest.Client(t, w.server)
	m := remembering(t, nc, "one")
	c := w.ask(natstest.Context(t), w.replicas())
	<-m.asked
	nc.Close()
	if o := w.await(c); !errors.Is(o.err, plugincall.ErrLost) || !strings.Contains(o.err.Error(), "has not listened") {
		t.Fatalf("got %+v", o)
	}
}

// There is no listener for a moment after the bus is back, which is not an error.
func TestAPluginThatIsBackALittleLaterIsAsked(t *testing.T) {
	p, w, nc := rig(t)
	p.Restart()
	natstest.Eventually(t, "the plugin's connection", func() bool { return nc.FlushTimeout(grace) == nil })
	natstest.Eventually(t, "the connection to be another", w.bus.Settling)
	c := w.ask(natstest.Context(t), w.replicas())
	m := remembering(t, nc, "one")
	select {
	case o := <-c:
		t.Fatalf("it was given up: %+v", o)
	case <-m.asked:
	}
	m.finish("here", false)
	if o := w.await(c); o.body != "here" {
		t.Fatalf("got %+v", o)
	}
}
