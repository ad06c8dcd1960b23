package e2etest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"skandha.dev/pkg/bus"
)

// Tail reads the log as it grows, over a separate connection, through
// JetStream's own API.
type Tail struct {
	js jetstream.JetStream

	mu      sync.Mutex
	log     *Log
	changed chan struct{} // closed and replaced at every change
}

// NewTail begins to read the log at its first message.
func NewTail(t testing.TB, url string, who *bus.Credentials) *Tail {
	t.Helper()
	nc, err := nats.Connect(url, nats.Name("e2e-tail"), nats.UserJWT(who.JWT, who.Sign), nats.MaxReconnects(-1), nats.RetryOnFailedConnect(true),
		nats.ReconnectWait(50*time.Millisecond), nats.ReconnectJitter(50*time.Millisecond, 50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	tl := &Tail{js: js, log: NewLog(), changed: make(chan struct{})}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); tl.run(ctx) }()
	t.Cleanup(func() { stop(); <-done })
	return tl
}

func (tl *Tail) run(ctx context.Context) {
	var last uint64
	ahead := 1
	for ctx.Err() == nil {
		list, err := following(ctx, tl.js, last, ahead)
		if len(list) > 0 {
			last = list[len(list)-1].Seq
			tl.change(func() {
				for _, e := range list {
					tl.log.Add(e)
				}
			})
		}
		ahead = min(2*len(list)+1, readAhead)
		if err != nil { // the end of the log, or a server that is away
			select {
			case <-ctx.Done():
			case <-time.After(10 * time.Millisecond):
			}
		}
	}
}

// readAhead is how many messages a tail that lags behind asks for at once.
const readAhead = 64

// following reads up to n messages after a sequence, in order. If it returns fewer
// than n, the error says why.
func following(ctx context.Context, js jetstream.JetStream, after uint64, n int) ([]Entry, error) {
	list, errs := make([]Entry, n), make([]error, n)
	var all sync.WaitGroup
	for i := 1; i < n; i++ {
		all.Go(func() {
			list[i], errs[i] = next(ctx, js, after+uint64(i))
		})
	}
	list[0], errs[0] = next(ctx, js, after)
	all.Wait()
	for i := range list {
		switch {
		case errs[i] != nil:
			return list[:i], errs[i]
		case i > 0 && list[i].Seq <= list[i-1].Seq: // there is a gap before
			return list[:i], nil
		}
	}
	return list, nil
}

// change does something under the lock, and wakes those who wait.
func (tl *Tail) change(f func()) {
	tl.mu.Lock()
	defer tl.mu.Unlock()
	f()
	close(tl.changed)
	tl.changed = make(chan struct{})
}

// next reads the first message after a sequence from the stream's leader.
func next(ctx context.Context, js jetstream.JetStream, after uint64) (Entry, error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	body := fmt.Appendf(nil, `{"seq":%d,"next_by_subj":">"}`, after+1)
	m, err := js.Conn().RequestWithContext(ctx, "$JS.API.STREAM.MSG.GET.SESSIONS", body)
	if err != nil {
		return Entry{}, err
	}
	var got struct {
		Message *struct {
			Subject string    `json:"subject"`
			Seq     uint64    `json:"seq"`
			Header  []byte    `json:"hdrs"`
			Data    []byte    `json:"data"`
			Time    time.Time `json:"time"`
		} `json:"message"`
	}
	if err := json.Unmarshal(m.Data, &got); err != nil {
		return Entry{}, err
	}
	if got.Message == nil {
		return Entry{}, errEnd
	}
	e := Entry{Seq: got.Message.Seq, Time: got.Message.Time, Subject: got.Message.Subject, Data: got.Message.Data}
	if h, err := nats.DecodeHeadersMsg(got.Message.Header); err == nil {
		e.Header = h
	}
	return e, nil
}

var errEnd = errors.New("the log ends here")

// See calls f with what has been read so far; f must not keep it.
func (tl *Tail) See(f func(*Log)) {
	tl.mu.Lock()
	defer tl.mu.Unlock()
	f(tl.log)
}

// entries is what has been read so far.
func (tl *Tail) entries() (out []Entry) {
	tl.See(func(l *Log) { out = slices.Clone(l.Entries) })
	return out
}

// Await waits until the log is as the condition says, and fails the test when it
// does not come to that.
func (tl *Tail) Await(t testing.TB, what string, condition func(*Log) bool) {
	t.Helper()
	if !tl.Within(Patience, condition) {
		t.Fatalf("waited %v in vain: %s\n%s", Patience, what, tl.Story(20))
	}
}

// Within waits until the log is as the condition says and reports whether it
// came to that in time.
func (tl *Tail) Within(d time.Duration, condition func(*Log) bool) bool {
	late := time.NewTimer(d)
	defer late.Stop()
	for {
		tl.mu.Lock()
		ok, changed := condition(tl.log), tl.changed
		tl.mu.Unlock()
		if ok {
			return true
		}
		select {
		case <-changed:
		case <-late.C:
			return false
		}
	}
}

// Story tells the last entries of the log, for people.
func (tl *Tail) Story(n int) string {
	var b strings.Builder
	tl.See(func(l *Log) {
		for _, e := range l.Entries[max(0, len(l.Entries)-n):] {
			b.WriteString(e.Story() + "\n")
		}
	})
	return b.String()
}

// SessionStory tells the last entries of one session.
func (tl *Tail) SessionStory(session string, n int) string {
	var lines []string
	tl.See(func(l *Log) {
		for _, e := range l.Entries {
			if e.Session() == session {
				lines = append(lines, e.Story())
			}
		}
	})
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// Story tells the entry in one line.
func (e Entry) Story() string {
	at := e.Time.Format("05.000")
	if !e.IsCommit() {
		return fmt.Sprintf("%d %s %s %.160s", e.Seq, at, e.Subject, e.Data)
	}
	c, err := readCommit(e)
	if err != nil {
		return fmt.Sprintf("%d %s %s %v", e.Seq, at, e.Subject, err)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d %s %s by %s %d%s cursor %d driver %d:", e.Seq, at, e.Session(), c.Trigger.Kind, c.Trigger.Sequence,
		c.Trigger.Call, c.Cursor, c.Driver)
	for _, ev := range c.Events {
		f, _ := ev.fields()
		name := strings.TrimSuffix(strings.TrimPrefix(ev.Type, "skandha."), ".v1")
		switch {
		case strings.HasPrefix(name, "ui.") && f.ConfirmationID == "":
			continue
		case ev.terminal():
			fmt.Fprintf(&b, " %s(%d %s %.60s)", name, f.Sequence, f.Code, f.Reason)
		case f.Result != nil:
			fmt.Fprintf(&b, " %s(%s %s)", name, f.Call, f.Result.outcome())
		case f.Attempt != "":
			fmt.Fprintf(&b, " %s(%s%s %.6s %s%s)", name, f.Call, f.Plan, f.Attempt, f.Runner, f.Provider)
		default:
			fmt.Fprintf(&b, " %s(%s%s%s %s)", name, f.Call, f.ConfirmationID, f.Disposition, f.Outcome)
		}
	}
	return b.String()
}
