package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/services/internal/journal"
	. "skandha.dev/services/test/e2e/e2etest"
	"skandha.dev/services/test/natstest"
)

// Three servers. Copies are added while cores run, leaders step down, servers and
// cores are killed: every acknowledged input ends exactly once (promises 1, 2, 4, 7).
// SKANDHA_E2E_CLUSTER_TURNS sets how many turns there are at least.
func TestCluster(t *testing.T) {
	t.Parallel()
	turns, kills := clusterTurns(t)
	r := seeded(t)
	s := Start(t, Options{Nodes: 3, Cores: 2, Runners: 2, Relaxed: true, Drain: 200 * time.Millisecond})
	s.AwaitCores(2)
	s.AwaitExecutors(3)
	u := upset{s: s, r: rand.New(rand.NewPCG(r.Uint64(), 2)), kills: kills}

	const sessions = 10
	var talks, upsets sync.WaitGroup
	var said atomic.Int64
	for i := range sessions {
		talks.Go(func() {
			var seqs []uint64
			for n := 0; n < turns/sessions || !u.done.Load(); n++ {
				if len(seqs) >= ahead {
					s.Ended(seqs[len(seqs)-ahead])
				}
				script := Script{Tag: strconv.Itoa(n)}
				if n%3 == 0 {
					script = once(Args{N: n})
				}
				seqs = append(seqs, s.Do(Ref(fmt.Sprintf("s%d", i)), script))
				said.Add(1)
			}
		})
	}
	upsets.Go(func() { u.run(&said, int64(turns)) })
	talks.Wait()
	upsets.Wait()
	t.Logf("%v", u.did)
	report(t, s.Verify())
	for _, name := range []string{
		bus.StreamSessions, journal.StreamTimers, journal.StreamDead, journal.StreamAudit,
		"KV_" + journal.BucketPlugins, "OBJ_" + bus.BucketClaims,
		"OBJ_" + journal.BucketArtifacts,
	} {
		if n := u.replicas(name); n != 3 {
			t.Errorf("%s has %d copies after cores have started, want 3", name, n)
		}
	}
}

func clusterTurns(t *testing.T) (turns, kills int) {
	turns, kills = 300, 2
	if runMode() == short {
		turns, kills = 150, 1
	}
	if text := os.Getenv("SKANDHA_E2E_CLUSTER_TURNS"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatalf("SKANDHA_E2E_CLUSTER_TURNS is %q, want a number: %v", text, err)
		}
		turns, kills = n, max(1, n/160)
	}
	return turns, kills
}

// upset disturbs the cluster and the cores.
type upset struct {
	s     *System
	r     *rand.Rand
	kills int // of a server
	done  atomic.Bool
	did   map[string]int
}

// run adds the copies after some turns have begun, and then spreads the faults evenly
// over the remaining turns.
func (u *upset) run(said *atomic.Int64, turns int64) {
	defer u.done.Store(true)
	u.did = map[string]int{}
	steps := int64(4 * u.kills)
	for i := range steps {
		at := turns * (i + 1) / (steps + 2)
		Eventually(u.s.T, "the next turns", func() bool { return said.Load() >= at })
		switch {
		case i == 0:
			u.addCopies()
		case i%4 == 3:
			u.killNode()
		case i%4 == 2:
			u.killCore()
		default:
			u.stepDown()
		}
	}
}

func (u *upset) addCopies() {
	if err := u.s.Bus.EnsureStreams(natstest.Context(u.s.T), journal.StreamsConfig{Replicas: 3}); err != nil {
		u.s.T.Errorf("adding copies: %v", err)
	}
}

// stepDown moves the leaders of the log and of its consumer. A leader that does not
// answer has just moved.
func (u *upset) stepDown() {
	for _, what := range []string{"STREAM.LEADER.STEPDOWN.SESSIONS", "CONSUMER.LEADER.STEPDOWN.SESSIONS.core"} {
		if _, err := u.ask(what); err == nil {
			u.did[what]++
		}
	}
}

func (u *upset) killCore() {
	c := u.s.Cores[u.r.IntN(len(u.s.Cores))]
	c.Kill()
	pause(u.r, 0, 500)
	c.Start()
	u.did["core"]++
}

// killNode kills a server once all copies are complete: if two servers are down at
// once, only their recovery is guaranteed.
func (u *upset) killNode() {
	Eventually(u.s.T, "all copies of the log to be whole", func() bool {
		i, err := u.info(bus.StreamSessions)
		return err == nil && i.whole()
	})
	n := u.s.Nodes[u.r.IntN(len(u.s.Nodes))]
	n.Kill()
	pause(u.r, 100, 1500)
	n.Start()
	u.did["server"]++
}

// streamInfo is the server's description of a stream.
type streamInfo struct {
	Config struct {
		Replicas int `json:"num_replicas"`
	} `json:"config"`
	Cluster struct {
		Leader   string `json:"leader"`
		Replicas []struct {
			Current bool `json:"current"`
		} `json:"replicas"`
	} `json:"cluster"`
}

func (i streamInfo) whole() bool {
	for _, r := range i.Cluster.Replicas {
		if !r.Current {
			return false
		}
	}
	return i.Cluster.Leader != "" && len(i.Cluster.Replicas) == i.Config.Replicas-1
}

func (u *upset) info(stream string) (i streamInfo, err error) {
	b, err := u.ask("STREAM.INFO." + stream)
	if err == nil {
		err = json.Unmarshal(b, &i)
	}
	return i, err
}

func (u *upset) replicas(stream string) (n int) {
	Eventually(u.s.T, "the description of "+stream, func() bool {
		i, err := u.info(stream)
		n = i.Config.Replicas
		return err == nil && n > 0
	})
	return n
}

func (u *upset) ask(what string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	m, err := u.s.Bus.Conn().RequestWithContext(ctx, "$JS.API."+what, nil)
	if err != nil {
		return nil, err
	}
	return m.Data, nil
}
