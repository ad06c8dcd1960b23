package retry_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	contract "skandha.dev/pkg/provider"
	"skandha.dev/services/provider/adapter"
	"skandha.dev/services/provider/retry"
)

var down = adapter.Errorf(contract.ErrUnavailable, "down")

func code(err error) contract.ErrorCode {
	var e *contract.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

// script plays one error after the other, nil for an answer, and notes when it was called.
func script(begun bool, errs ...error) (retry.Try, *[]time.Duration) {
	var at []time.Duration
	start := time.Now()
	return func(context.Context) (contract.Response, bool, error) {
		at = append(at, time.Since(start))
		err := errs[min(len(at), len(errs))-1]
		return contract.Response{TextContent: "answer"}, begun, err
	}, &at
}

func TestRetryableFailureIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := retry.New(retry.Config{})
		try, at := script(false, down, down, nil)
		resp, err := p.Do(t.Context(), try)
		if err != nil || resp.TextContent != "answer" || len(*at) != 3 {
			t.Fatalf("after %d tries: %+v, %v", len(*at), resp, err)
		}
		// Pauses double, and jitter only adds: 500..625 ms, then 1000..1250 ms.
		if d := (*at)[1]; d < 500*time.Millisecond || d > 625*time.Millisecond {
			t.Errorf("second try after %s", d)
		}
		if d := (*at)[2] - (*at)[1]; d < time.Second || d > 1250*time.Millisecond {
			t.Errorf("third try %s after the second", d)
		}
	})
}

func TestLastErrorIsReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		try, at := script(false, down, down, adapter.Errorf(contract.ErrRateLimited, "slow down"))
		_, err := retry.New(retry.Config{}).Do(t.Context(), try)
		if code(err) != contract.ErrRateLimited || len(*at) != 3 {
			t.Errorf("after %d tries: %v", len(*at), err)
		}
	})
}

func TestNotTriedAgain(t *testing.T) {
	wish := func(ms int64) error {
		e := adapter.Errorf(contract.ErrRateLimited, "slow down")
		e.RetryInMS = ms
		return e
	}
	for _, c := range []struct {
		name  string
		begun bool
		err   error
	}{
		{"not retryable", false, adapter.Errorf(contract.ErrAuth, "no")},
		{"its text was seen", true, down},
		{"the API wants a longer pause than we take", false, wish(60_000)},
		{"a foreign error", false, errors.New("?")},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				try, at := script(c.begun, c.err, nil)
				if _, err := retry.New(retry.Config{}).Do(t.Context(), try); !errors.Is(err, c.err) || len(*at) != 1 {
					t.Errorf("after %d tries: %v", len(*at), err)
				}
			})
		})
	}
}

func TestRetryAfterIsHonoured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limited := adapter.Errorf(contract.ErrRateLimited, "slow down")
		limited.RetryInMS = 7000
		try, at := script(false, limited, nil)
		if _, err := retry.New(retry.Config{}).Do(t.Context(), try); err != nil {
			t.Fatal(err)
		}
		if d := (*at)[1]; d < 7*time.Second {
			t.Errorf("second try after %s, the API asked for 7 s", d)
		}
	})
}

func TestNoPauseBeyondTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		try, at := script(false, down, nil)
		if _, err := retry.New(retry.Config{}).Do(ctx, try); code(err) != contract.ErrUnavailable || len(*at) != 1 ||
			ctx.Err() != nil {
			t.Errorf("after %d tries: %v (context: %v)", len(*at), err, ctx.Err())
		}
	})
}

func TestCancelEndsAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(100*time.Millisecond, cancel)
		start := time.Now()
		try, _ := script(false, down)
		if _, err := retry.New(retry.Config{}).Do(ctx, try); !errors.Is(err, context.Canceled) ||
			time.Since(start) != 100*time.Millisecond {
			t.Errorf("after %s: %v", time.Since(start), err)
		}
	})
}

func TestBreakerLeavesADeadAPIAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := retry.New(retry.Config{Tries: 1, TripAfter: 3, OpenFor: 10 * time.Second})
		dead, calls := script(false, down)
		for range 3 {
			_, _ = p.Do(t.Context(), dead)
		}
		_, err := p.Do(t.Context(), dead)
		var e *contract.Error
		if !errors.As(err, &e) || e.Code != contract.ErrUnavailable || !e.Retryable || e.RetryInMS <= 0 ||
			e.RetryInMS > 10_000 ||
			!strings.HasPrefix(e.Message, "down (3 questions failed") {
			t.Errorf("an open breaker says %v, want why it is open", err)
		}
		if len(*calls) != 3 {
			t.Errorf("the API was called %d times, want 3", len(*calls))
		}
		time.Sleep(10 * time.Second) // synthetic time
		alive, _ := script(false, nil)
		if _, err := p.Do(t.Context(), alive); err != nil {
			t.Errorf("after the pause: %v", err)
		}
		if _, err := p.Do(t.Context(), alive); err != nil {
			t.Errorf("a closed breaker says %v", err)
		}
	})
}

// However often a question is asked again, here and by core, it counts once: another
// one is still asked.
func TestOneQuestionDoesNotOpenTheBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := retry.New(retry.Config{TripAfter: 2})
		dead, calls := script(false, down)
		for range 4 {
			_, _ = p.Do(retry.WithQuestion(t.Context(), "t1-p1"), dead)
		}
		if len(*calls) != 12 {
			t.Errorf("the API was called %d times, want 3 tries at each of 4 attempts", len(*calls))
		}
		other, calls := script(false, down)
		if _, err := p.Do(retry.WithQuestion(t.Context(), "t2-p1"), other); len(*calls) != 3 || !errors.Is(err, down) {
			t.Errorf("another question was tried %d times: %v", len(*calls), err)
		}
		third, calls := script(false, nil)
		if _, err := p.Do(retry.WithQuestion(t.Context(), "t3-p1"), third); len(*calls) != 0 ||
			code(err) != contract.ErrUnavailable {
			t.Errorf("after 2 failed questions a third was tried %d times: %v", len(*calls), err)
		}
	})
}

// A trial of a half-open breaker that is cancelled neither closes it nor blocks it.
func TestACancelledTrialIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := retry.New(retry.Config{Tries: 1, TripAfter: 1, OpenFor: 10 * time.Second})
		dead, _ := script(false, down)
		_, _ = p.Do(t.Context(), dead)
		time.Sleep(10 * time.Second) // synthetic time
		ctx, cancel := context.WithCancel(t.Context())
		_, _ = p.Do(ctx, func(ctx context.Context) (contract.Response, bool, error) {
			cancel()
			return contract.Response{}, false, ctx.Err()
		})
		alive, calls := script(false, nil)
		if _, err := p.Do(t.Context(), alive); code(err) != contract.ErrUnavailable || len(*calls) != 0 {
			t.Errorf("right after it: %d calls, %v", len(*calls), err)
		}
		time.Sleep(10 * time.Second) // synthetic time
		if _, err := p.Do(t.Context(), alive); err != nil {
			t.Errorf("after another pause: %v", err)
		}
	})
}

func TestBreakerIgnoresWhatShowsThatTheAPILives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := retry.New(retry.Config{Tries: 1, TripAfter: 2})
		for _, err := range []error{
			adapter.Errorf(contract.ErrRateLimited, ""), adapter.Errorf(contract.ErrBadRequest, ""),
			adapter.Errorf(contract.ErrGarbage, ""), adapter.Errorf(contract.ErrAuth, ""),
		} {
			for range 3 {
				try, at := script(false, err)
				if _, _ = p.Do(t.Context(), try); len(*at) != 1 {
					t.Fatalf("the breaker opened on %v", err)
				}
			}
		}
		for range 3 {
			try, at := script(true, down) // broke off in the middle of its answer
			if _, _ = p.Do(t.Context(), try); len(*at) != 1 {
				t.Fatal("the breaker opened on answers that broke off")
			}
		}
	})
}

func TestConfigNamesTheField(t *testing.T) {
	for _, c := range []retry.Config{
		{Tries: -1}, {Tries: 11}, {TripAfter: -1}, {Pause: -1}, {MaxPause: -1}, {OpenFor: -1},
	} {
		if c.Validate() == nil {
			t.Errorf("%+v passes", c)
		}
	}
	if err := (retry.Config{}).Validate(); err != nil {
		t.Error(err)
	}
}

// Core asks a question again as soon as an attempt has failed; the API is not asked before it
// wants to be.
func TestARepeatedQuestionHonoursRetryAfter(t *testing.T) {
	limited := adapter.Errorf(contract.ErrRateLimited, "slow down")
	for _, c := range []struct {
		name    string
		wish    time.Duration
		begun   bool
		at      []time.Duration // the earliest of each call
		refused string          // in the message of the second attempt; empty: it is answered
	}{
		{"longer than a pause", time.Minute, false, []time.Duration{0, time.Minute}, ""},
		{"longer than there is time", time.Hour, false, []time.Duration{0}, "it wants a pause of 1h0m0s"},
		{"absurd", 1 << 50, false, []time.Duration{0}, "it wants a pause of"},
		{"it broke off", 0, true, []time.Duration{0, 500 * time.Millisecond}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := retry.New(retry.Config{})
				e := *limited
				e.RetryInMS = c.wish.Milliseconds()
				try, at := script(c.begun, &e, nil)
				ask := func(id string) error {
					ctx, cancel := context.WithTimeout(retry.WithQuestion(t.Context(), id), 2*time.Minute)
					defer cancel()
					_, err := p.Do(ctx, try)
					return err
				}
				if err := ask("t1-p1"); !errors.Is(err, &e) {
					t.Fatalf("the first attempt: %v", err)
				}
				switch err := ask("t1-p1"); {
				case c.refused == "" && err != nil:
					t.Errorf("the second attempt: %v", err)
				case c.refused != "" && (code(err) != contract.ErrRateLimited || !strings.Contains(err.Error(), c.refused)):
					t.Errorf("the second attempt: %v, want %q", err, c.refused)
				}
				if len(*at) != len(c.at) {
					t.Fatalf("the API was called after %v, want %v", *at, c.at)
				}
				for i, want := range c.at {
					if (*at)[i] < want {
						t.Errorf("call %d after %s, want %s", i, (*at)[i], want)
					}
				}
				before := time.Now()
				if err := ask("t2-p1"); err != nil || !time.Now().Equal(before) {
					t.Errorf("another question: %v after %s", err, time.Since(before))
				}
			})
		})
	}
}

func TestCancelEndsTheWaitForARetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := retry.New(retry.Config{})
		limited := adapter.Errorf(contract.ErrRateLimited, "slow down")
		limited.RetryInMS = 60_000
		try, at := script(false, limited)
		ctx, cancel := context.WithCancel(retry.WithQuestion(t.Context(), "t1-p1"))
		_, _ = p.Do(ctx, try)
		time.AfterFunc(time.Second, cancel)
		if _, err := p.Do(ctx, try); !errors.Is(err, context.Canceled) || len(*at) != 1 {
			t.Errorf("after %d calls: %v", len(*at), err)
		}
	})
}

// An API charges for an empty answer, too: only core asks for another one.
func TestAnAnswerThatWasPaidForIsNotTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		empty := adapter.Errorf(contract.ErrGarbage, "neither text nor calls")
		for id, want := range map[string]int{"t1-p1": 1, "": 3} { // without a question there is no core
			var began atomic.Bool
			calls := 0
			_, err := retry.New(retry.Config{}).Do(adapter.WithBegan(retry.WithQuestion(t.Context(), id), &began),
				func(ctx context.Context) (contract.Response, bool, error) {
					calls++
					adapter.Began(ctx)
					return contract.Response{}, false, empty
				})
			if !errors.Is(err, empty) || calls != want {
				t.Errorf("question %q: %v after %d calls, want %d", id, err, calls, want)
			}
		}
	})
}
