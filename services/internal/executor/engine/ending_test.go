package engine

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/executor"
)

func TestStop(t *testing.T) {
	stop := func(b *bench, call string) *listener {
		l := &listener{}
		b.Stop(request(call, "now"), l)
		synctest.Wait()
		return l
	}
	t.Run("of running work: stopped, when it has returned", func(t *testing.T) {
		inBubble(t, nil, func(t *testing.T, b *bench) {
			run := b.run("c", "block")
			b.want(stop(b, "c"), executor.Stopped)
			b.want(run, executor.Stopped)
			if a := b.ask("c"); a.State != executor.Stopped {
				t.Fatalf("got %+v", a)
			}
			b.want(b.run("d", "now"), executor.Finished) // its slot is free
		})
	})
	t.Run("of work that ignores it: stopped, after the grace, its result dropped", func(t *testing.T) {
		inBubble(t, nil, func(t *testing.T, b *bench) {
			run := b.run("c", "deaf")
			l := stop(b, "c")
			time.Sleep(Grace - time.Millisecond)
			if s := l.states(); slices.Contains(s, executor.Stopped) {
				t.Fatalf("stopped before the grace was over: %v", s)
			}
			time.Sleep(time.Millisecond)
			synctest.Wait()
			if l.last().State != executor.Stopped || run.last().State != executor.Stopped {
				t.Fatalf("got %+v and %+v", l.last(), run.last())
			}
			if p := b.Pools()[0]; p.Busy != 1 {
				t.Fatalf("work that has not returned gave its slot away: %+v", p)
			}
			b.block <- struct{}{}
			synctest.Wait()
			if p := b.Pools()[0]; p.Busy != 0 || b.ask("c").State != executor.Stopped {
				t.Fatalf("got %+v and %+v", p, b.ask("c"))
			}
		})
	})
	t.Run("of work that succeeds all the same: its result", func(t *testing.T) {
		inBubble(t, nil, func(t *testing.T, b *bench) {
			b.run("c", "stubborn")
			b.want(stop(b, "c"), executor.Finished)
		})
	})
	t.Run("of finished work: its result", func(t *testing.T) {
		inBubble(t, nil, func(t *testing.T, b *bench) {
			b.run("c", "now")
			b.want(stop(b, "c"), executor.Finished)
		})
	})
	t.Run("of what waits: never", func(t *testing.T) {
		inBubble(t, nil, func(t *testing.T, b *bench) {
			b.run("c", "block")
			waits := b.run("d", "now")
			b.want(stop(b, "d"), executor.Never)
			b.want(waits, executor.Never)
			b.block <- struct{}{}
			synctest.Wait()
			if b.started.Load() != 1 || b.ask("d").State != executor.Never {
				t.Fatalf("%d started", b.started.Load())
			}
		})
	})
}

func TestStoppingWorkThatDidNotRunMakesNoDifference(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, b *bench) {
		l, stop := b.run("c", "nobody"), &listener{}
		time.Sleep(quiet)
		b.want(l, executor.Running)
		b.Stop(request("c", "nobody"), stop)
		b.block <- struct{}{}
		b.want(l, executor.Running, executor.Refused)
		b.want(stop, executor.Refused)
		if a := b.ask("c"); a.State != executor.Refused || a.Reason != executor.RefusedUnknown {
			t.Fatalf("got %+v", a)
		}
		b.want(b.run("c", "now"), executor.Refused)
	})
}

func TestWhatIsStoppedBetweenItsSlotAndItsStartNeverRuns(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, b *bench) {
		stop := sync.OnceFunc(func() { b.Stop(request("c", "now"), nil) })
		b.changed = func(bool) { stop() } // is called when the slot is taken
		b.want(b.run("c", "now"), executor.Never)
		if p := b.Pools()[0]; b.started.Load() != 0 || p.Busy != 0 {
			t.Fatalf("%d starts, %+v", b.started.Load(), p)
		}
	})
}

func TestLate(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, b *bench) {
		r, l := request("c", "now"), &listener{}
		time.Sleep(executor.StartWithin + time.Nanosecond)
		b.Run(t.Context(), r, l)
		b.want(l, executor.Refused)
		if l.last().Reason != executor.RefusedLate || b.ask("c").Reason != executor.RefusedLate {
			t.Fatalf("got %+v", l.last())
		}
	})
	t.Run("when its slot comes", func(t *testing.T) {
		inBubble(t, nil, func(t *testing.T, b *bench) {
			b.run("a", "block")
			waits := b.run("c", "now")
			time.Sleep(executor.StartWithin + time.Microsecond)
			b.block <- struct{}{} // before anybody has noticed that it is late
			synctest.Wait()
			if a := waits.last(); a.State != executor.Refused || a.Reason != executor.RefusedLate || b.started.Load() != 1 {
				t.Fatalf("got %+v and %d starts", a, b.started.Load())
			}
		})
	})
	t.Run("while it waits for a slot", func(t *testing.T) {
		inBubble(t, nil, func(t *testing.T, b *bench) {
			b.run("a", "block")
			waits := b.run("c", "now")
			time.Sleep(executor.StartWithin + 2*time.Millisecond)
			synctest.Wait()
			if a := waits.last(); a.State != executor.Refused || a.Reason != executor.RefusedLate {
				t.Fatalf("got %+v", a)
			}
			if p := b.Pools()[0]; p.Busy != 1 {
				t.Fatalf("it still waits: %+v", p)
			}
			b.block <- struct{}{}
			synctest.Wait()
			if b.started.Load() != 1 {
				t.Fatal("it started, too late")
			}
		})
	})
}

func TestDeadline(t *testing.T) {
	check := func(t *testing.T, a executor.Answer, code tool.Code, ms int64) {
		t.Helper()
		if a.State != executor.Finished || a.Result.Error.Code != code || a.DurationMS != ms {
			t.Fatalf("got %+v, %+v", a, a.Result)
		}
	}
	t.Run("of the request", func(t *testing.T) {
		inBubble(t, nil, func(t *testing.T, b *bench) {
			l := b.run("c", "block")
			time.Sleep(time.Minute)
			synctest.Wait()
			check(t, l.last(), tool.CodeTimeout, 60_000)
			if d := l.last().Result.Error.Details; len(d) != 1 || d[0] != "interrupted: context deadline exceeded" {
				t.Fatalf("what the tool said is lost: %q", d)
			}
		})
	})
	t.Run("of the tool", func(t *testing.T) {
		inBubble(t, nil, func(t *testing.T, b *bench) {
			l := b.run("c", "short")
			time.Sleep(50 * time.Millisecond)
			synctest.Wait()
			check(t, l.last(), tool.CodeTimeout, 50)
		})
	})
	t.Run("of work that does not know whether it had its effect: that is more than a timeout", func(t *testing.T) {
		inBubble(t, nil, func(t *testing.T, b *bench) {
			l := b.run("c", "unsure")
			time.Sleep(50 * time.Millisecond)
			synctest.Wait()
			check(t, l.last(), tool.CodeOutcomeUnknown, 50)
		})
	})
	t.Run("ignored: answered for after the grace", func(t *testing.T) {
		inBubble(t, nil, func(t *testing.T, b *bench) {
			l := b.run("c", "deaf")
			time.Sleep(time.Minute + Grace)
			synctest.Wait()
			check(t, l.last(), tool.CodeTimeout, 62_000)
			if p := b.Pools()[0]; p.Busy != 1 {
				t.Fatalf("got %+v", p)
			}
		})
	})
	t.Run("of a provider", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			cost := provider.Usage{CostMicroUSD: 7, Uncounted: 1}
			table, err := validAttempts(Config{
				Kind: subject.Provider, Service: "provider", Offer: Offer{Providers: []provider.Info{{Name: "p"}}},
				Work: func(ctx context.Context, _ executor.Request, _ func(string)) executor.Answer {
					<-ctx.Done()
					return executor.Answer{Error: &provider.Error{Code: provider.ErrUnavailable, Message: "reading"}, Spent: cost}
				},
			}, "p-1")
			if err != nil {
				t.Fatal(err)
			}
			r, l := request("c", ""), &listener{}
			r.Tool, r.Model = nil, &provider.Request{}
			table.Run(t.Context(), r, l)
			if e := l.last().Error; e == nil || e.Code != provider.ErrTimeout || !e.Retryable {
				t.Fatalf("got %+v", e)
			}
			if a := l.last(); a.Spent != cost {
				t.Errorf("it has spent %+v, want %+v", a.Spent, cost)
			}
		})
	})
}

func TestDrainRefusesWhatWaitsAndWaitsForWhatRuns(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, b *bench) {
		runs, waits := b.run("a", "block"), b.run("b", "now")
		empty := b.Drain()
		b.want(waits, executor.Refused)
		l := b.run("c", "now")
		b.want(l, executor.Refused)
		if waits.last().Reason != executor.RefusedDraining || l.last().Reason != executor.RefusedDraining {
			t.Fatalf("got %+v and %+v", waits.last(), l.last())
		}
		isEmpty := func() bool {
			select {
			case <-empty:
				return true
			default:
				return false
			}
		}
		b.block <- struct{}{}
		b.want(runs, executor.Finished)
		if isEmpty() {
			t.Fatal("empty although a result is not released")
		}
		b.Release(request("a", "block"))
		if !isEmpty() {
			t.Fatal("not empty although all is released")
		}
	})
}

// The release of a result can be lost with the bus. A drain waits for it only while somebody asks.
func TestADrainDoesNotWaitForAReleaseThatIsLost(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, b *bench) {
		b.run("a", "now")
		b.run("b", "now")
		time.Sleep(unheard)
		b.ask("b")
		empty := b.Drain()
		over := func() bool {
			b.Sweep()
			select {
			case <-empty:
				return true
			default:
				return false
			}
		}
		time.Sleep(time.Second)
		if over() || b.ask("a").State != executor.Unknown || b.ask("b").State != executor.Finished {
			t.Fatal("want only the result that nobody has asked for dropped")
		}
		time.Sleep(unheard)
		if over() {
			t.Fatal("over although somebody has just asked")
		}
		time.Sleep(time.Second)
		if !over() {
			t.Fatal("it waits for a release that is lost")
		}
	})
}

func TestStopAllAnswersForAll(t *testing.T) {
	inBubble(t, func(c *Config) { c.Pools[0].Slots = 2 }, func(t *testing.T, b *bench) {
		heeds, deaf, waits := b.run("a", "block"), b.run("b", "deaf"), b.run("c", "now")
		b.StopAll()
		for l, want := range map[*listener]executor.State{
			heeds: executor.Stopped, deaf: executor.Stopped, waits: executor.Refused,
		} {
			if got := l.last().State; got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		}
	})
}

// What an announcement offers is accepted already: a core may use it at once.
func TestAnOfferIsAcceptedBeforeItIsAnnounced(t *testing.T) {
	var sent []string
	a, err := newAnnouncer(Config{Kind: "runner"}, "i", func() []executor.Pool { return nil },
		func(b []byte) error { sent = append(sent, string(b)); return nil })
	if err != nil {
		t.Fatal(err)
	}
	accepted := false
	err = a.setOffer(Offer{Tools: []tool.Spec{{Name: "new:tool"}}}, func() {
		a.send(nil) // as if one were due now
		accepted = true
	})
	if err != nil || !accepted || len(sent) != 1 || strings.Contains(sent[0], "new:tool") {
		t.Errorf("%v, accepted %t, announced before: %v", err, accepted, sent)
	}
	if a.announce(false); !strings.Contains(sent[1], "new:tool") {
		t.Errorf("announced afterwards: %s", sent[1])
	}
}
