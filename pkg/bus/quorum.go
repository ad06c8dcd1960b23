package bus

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// The times of the watch over a log with several copies.
const (
	quorumEvery  = 300 * time.Millisecond // between two looks
	quorumAnswer = 300 * time.Millisecond // for an answer of the log
	quorumHello  = 500 * time.Millisecond // for the greeting of a server
	quorumGone   = 4 * time.Second        // without a sign of life, a copy is gone for the leader
	quorumSingle = time.Second            // between two looks at a log with one copy
	quorumAlone  = 5 * time.Second        // between two looks at a server without a cluster
	quorumLearn  = time.Minute            // between two searches for servers that never greeted
)

// WatchQuorum reports as a [StorageFault], until ctx ends, that a log with several copies has lost most of
// them, within about a second. The servers need some ten seconds to notice: until then a leader that is left
// answers questions as always, but stores nothing, and without a leader nobody answers.
//
// A log that does not answer is no fault: it may be slow, or elect another leader, and inputs wait for that.
// So the watch then looks which of its servers still greet, where they have greeted before. Servers that this
// process could never reach, behind a proxy or by an internal address, do not count.
func (b *Bus) WatchQuorum(ctx context.Context) {
	w := quorumWatch{b: b, at: map[string]string{}}
	for {
		t := time.NewTimer(w.look(ctx))
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-t.C:
		}
	}
}

// quorumWatch is what the watch knows of the log. Servers go by their names.
type quorumWatch struct {
	b       *Bus
	copies  []string          // the servers that keep the log
	at      map[string]string // where servers have greeted: host and port
	asked   time.Time         // when copies was last asked for
	tried   []string          // the URLs and copies with which servers were last looked for, and when
	triedAt time.Time
	stored  uint64    // acknowledgements by the last look
	moved   bool      // to another server, because the leader heard nothing of the others
	silent  time.Time // since when the log does not answer; zero if it does
}

// look looks once, and returns the pause until the next time.
func (w *quorumWatch) look(ctx context.Context) time.Duration {
	if !w.b.Connected() {
		return quorumEvery // which is reported elsewhere
	}
	if len(w.copies) <= 1 {
		w.askCopies(ctx)
	}
	if len(w.copies) == 0 {
		return quorumAlone
	}
	if len(w.copies) == 1 {
		return quorumSingle
	}
	if w.answers(ctx) {
		w.silent, w.moved = time.Time{}, false
		if time.Since(w.asked) > quorumAlone {
			w.askCopies(ctx)
		}
		if time.Since(w.asked) > quorumAlone+storageSilent { // the control link's server does not answer
			w.asked = time.Now()
			w.b.tryElsewhere("the log does not answer")
		}
		w.learn(ctx)
		return quorumEvery
	}
	if w.silent.IsZero() {
		w.silent = time.Now()
	}
	w.explain(ctx)
	return quorumEvery
}

// explain finds out why the log does not answer.
func (w *quorumWatch) explain(ctx context.Context) {
	lost := w.missing(ctx)
	if w.most(lost) {
		w.report(ctx, lost, "cannot be reached (%s), and it needs %d; start them again, it then continues by itself")
		return
	}
	unheard := w.unheard(ctx)
	switch {
	case w.most(unheard) && (w.moved || !w.b.tryElsewhere("its server hears nothing of the others")):
		w.report(ctx, unheard, "cannot be reached by its leader (%s), and it needs %d; see to their network")
	case w.most(unheard):
		w.moved = true
	case time.Since(w.silent) > storageSilent:
		w.silent = time.Time{}
		w.b.tryElsewhere("the log does not answer")
	}
}

// most reports whether a log that has lost these servers cannot store.
func (w *quorumWatch) most(lost []string) bool { return 2*len(lost) >= len(w.copies) }

func (w *quorumWatch) report(ctx context.Context, lost []string, what string) {
	if ctx.Err() != nil {
		return
	}
	slices.Sort(lost)
	n := len(w.copies)
	w.b.storageFails(&StorageFault{lost: true, Reason: fmt.Sprintf("%d of the %d servers that keep the log "+what,
		len(lost), n, strings.Join(lost, ", "), n/2+1)}, 0)
}

// askCopies asks the leader which servers keep the log. Without a leader, the last answer is kept.
func (w *quorumWatch) askCopies(ctx context.Context) {
	info := w.info(ctx)
	if info == nil {
		return
	}
	w.asked = time.Now()
	if info.Cluster == nil {
		w.copies = nil
		return
	}
	if info.Cluster.Leader == "" {
		return
	}
	w.copies = []string{info.Cluster.Leader}
	for _, r := range info.Cluster.Replicas {
		w.copies = append(w.copies, r.Name)
	}
}

func (w *quorumWatch) info(ctx context.Context) *jetstream.StreamInfo {
	ctx, cancel := context.WithTimeout(ctx, quorumAnswer)
	defer cancel()
	info, err := w.b.LogInfo(ctx, "")
	if err != nil {
		return nil
	}
	return info
}

// answers reports whether most copies agree on something: on what was stored since the last look, or on a
// request that changes nothing.
func (w *quorumWatch) answers(ctx context.Context) bool {
	n := w.b.storage.acks.Load()
	if n != w.stored {
		w.stored = n
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, quorumAnswer)
	defer cancel()
	err := w.b.writeError(ctx)
	var fault *StorageFault // which is reported elsewhere
	return err == nil || errors.As(err, &fault) || errors.Is(err, ErrDenied)
}

// unheard returns the copies that a leader has long heard nothing of.
func (w *quorumWatch) unheard(ctx context.Context) (names []string) {
	info := w.info(ctx)
	if info == nil || info.Cluster == nil || info.Cluster.Leader == "" {
		return nil
	}
	for _, r := range info.Cluster.Replicas {
		if r.Offline || r.Active > quorumGone {
			names = append(names, r.Name)
		}
	}
	return names
}

// learn finds out where the servers are, whenever the connection or the log has others than before.
func (w *quorumWatch) learn(ctx context.Context) {
	pool := slices.Sorted(slices.Values(w.b.Conn().Servers()))
	known := slices.Concat(pool, w.copies)
	if slices.Equal(known, w.tried) && (time.Since(w.triedAt) < quorumLearn || !slices.ContainsFunc(w.copies, w.unknown)) {
		return
	}
	w.tried, w.triedAt = known, time.Now()
	var addrs []string
	for _, server := range pool {
		u, err := url.Parse(server)
		if err != nil || u.Hostname() == "" || u.Scheme == "ws" || u.Scheme == "wss" {
			continue
		}
		port := u.Port()
		if port == "" {
			port = "4222"
		}
		addrs = append(addrs, net.JoinHostPort(u.Hostname(), port))
	}
	for name, addr := range greetings(ctx, addrs) {
		w.at[name] = addr
	}
}

func (w *quorumWatch) unknown(name string) bool { _, known := w.at[name]; return !known }

// missing returns the copies that no longer greet where they did.
func (w *quorumWatch) missing(ctx context.Context) (names []string) {
	known := maps.Clone(w.at)
	maps.DeleteFunc(known, func(name, _ string) bool { return !slices.Contains(w.copies, name) })
	there := greetings(ctx, slices.Collect(maps.Values(known)))
	for name := range known {
		if _, greets := there[name]; !greets {
			names = append(names, name)
		}
	}
	return names
}

// greetings connects to the addresses at once, and returns where each server is that greets.
func greetings(ctx context.Context, addrs []string) map[string]string {
	ctx, cancel := context.WithTimeout(ctx, quorumHello)
	defer cancel()
	var mu sync.Mutex
	var all sync.WaitGroup
	at := map[string]string{}
	for _, addr := range addrs {
		all.Go(func() {
			if name := greeting(ctx, addr); name != "" {
				mu.Lock()
				defer mu.Unlock()
				at[name] = addr
			}
		})
	}
	all.Wait()
	return at
}

// greeting returns the name that a server gives itself, empty if it does not greet.
func greeting(ctx context.Context, addr string) string {
	c, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return ""
	}
	defer c.Close() //nolint:errcheck // nothing was written
	end, _ := ctx.Deadline()
	if c.SetReadDeadline(end) != nil {
		return ""
	}
	line, err := bufio.NewReaderSize(c, 32<<10).ReadSlice('\n')
	rest, isInfo := bytes.CutPrefix(line, []byte("INFO "))
	var info struct {
		Name string `json:"server_name"`
	}
	if err != nil || !isInfo || json.Unmarshal(rest, &info) != nil {
		return ""
	}
	return info.Name
}
