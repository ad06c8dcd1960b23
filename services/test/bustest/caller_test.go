package bustest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/trace"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/telemetry"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/natsserver"
	"skandha.dev/services/test/natstest"
)

// pair is a caller and a responder in two processes, as it were.
func pair(t testing.TB) (*bus.Caller, *journal.Journal, *natsserver.Server) {
	t.Helper()
	s := natstest.Start(t)
	return caller(t, natstest.Connect(t, s)), natstest.Connect(t, s), s
}

func caller(t testing.TB, b *journal.Journal) *bus.Caller {
	t.Helper()
	c, err := b.NewCaller()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// respond answers until the test ends; the subscription is known to the server when it returns.
func respond(
	t testing.TB, b *journal.Journal, subj, self string, h func(*bus.Request), opts ...bus.RespondOption,
) *bus.Responder {
	t.Helper()
	r, err := b.Respond(subj, self, self, h, opts...)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Conn().Flush(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Stop)
	return r
}

func echo(q *bus.Request) { _ = q.Reply(q.Data) }

func TestRequestIsAnswered(t *testing.T) {
	c, b, _ := pair(t)
	respond(t, b, "tool.echo.*", "echo", echo)
	for _, body := range []string{"", "hello", strings.Repeat("x", bus.ClaimThreshold)} {
		got, err := c.Request(natstest.Context(t), "tool.echo.say", "echo", []byte(body))
		if err != nil || string(got) != body {
			t.Fatalf("%d bytes, %v", len(got), err)
		}
	}
	if c.Waiting() != 0 {
		t.Errorf("%d requests still wait", c.Waiting())
	}
}

func TestManyRequestsAtOnceGetTheirOwnAnswers(t *testing.T) {
	c, b, _ := pair(t)
	respond(t, b, "tool.echo.say", "echo", echo)
	ctx := natstest.Context(t)
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			body := fmt.Sprint(i)
			if i%20 == 0 {
				body = strings.Repeat(body+" ", 200<<10)
			}
			got, err := c.Request(ctx, "tool.echo.say", "echo", []byte(body))
			if err != nil || string(got) != body {
				t.Errorf("request %d: %d bytes, %v", i, len(got), err)
			}
		})
	}
	wg.Wait()
}

func TestNobodyThereIsSeenAtOnce(t *testing.T) {
	c, _, _ := pair(t)
	_, err := c.Request(natstest.Context(t), "tool.none.x", "none", nil)
	if !errors.Is(err, bus.ErrUnavailable) || !errors.Is(err, nats.ErrNoResponders) || !bus.Retryable(err) {
		t.Errorf("%v, want ErrUnavailable because nobody responds", err)
	}
	got := make(chan bus.Reply, 1)
	cancel, err := c.Send(natstest.Context(t), "tool.none.x", "none", nil, nil, func(r bus.Reply) { got <- r })
	if err != nil {
		t.Fatal(err)
	}
	defer cancel()
	if r := <-got; !r.NoResponders {
		t.Errorf("%+v, want NoResponders", r)
	}
}

// The server sends "no responders" to one subscription only.
func TestNobodyThereIsSeenByEachCallerOfABus(t *testing.T) {
	_, b, _ := pair(t)
	ctx := natstest.Context(t)
	callers := make([]*bus.Caller, 4)
	for i := range callers {
		c, err := b.NewCaller()
		if err != nil {
			t.Fatal(err)
		}
		callers[i] = c
	}
	for i, c := range callers {
		for range 8 {
			if _, err := c.Request(ctx, "tool.none.x", "none", nil); !errors.Is(err, nats.ErrNoResponders) {
				t.Fatalf("caller %d: %v, want ErrNoResponders", i, err)
			}
		}
		if err := errors.Join(c.Close(), c.Close()); err != nil {
			t.Error(err)
		}
	}
	respond(t, b, "tool.echo.say", "echo", echo)
	again, err := b.NewCaller()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := again.Request(ctx, "tool.echo.say", "echo", []byte("hello")); err != nil || string(got) != "hello" {
		t.Errorf("a caller after the others were closed: %q, %v", got, err)
	}
}

func TestErrorsCrossTheBus(t *testing.T) {
	c, b, _ := pair(t)
	var answer atomic.Pointer[error]
	respond(t, b, "tool.bad.x", "bad", func(q *bus.Request) { _ = q.ReplyError(*answer.Load()) })
	for _, e := range []struct {
		err       error
		want      error
		retryable bool
	}{
		{bus.Errorf(bus.CodeInvalidArgument, "field x"), bus.ErrInvalidArgument, false},
		{fmt.Errorf("looking for it: %w", bus.ErrNotFound), bus.ErrNotFound, false},
		{bus.ErrDenied, bus.ErrDenied, false},
		{bus.ErrUnavailable, bus.ErrUnavailable, true},
		{context.DeadlineExceeded, bus.ErrTimeout, true},
		{bus.ErrTooLarge, bus.ErrTooLarge, false},
		{bus.ErrFenceLost, bus.ErrConflict, true},
		{errors.New("boom"), bus.ErrInternal, false},
		{context.Canceled, bus.ErrCancelled, false},
		{&bus.Error{Code: bus.CodeInternal, Message: "try again", Retryable: true}, bus.ErrInternal, true},
		{&bus.Error{Code: "brand_new", Message: "from a newer version"}, bus.ErrInternal, false},
	} {
		answer.Store(&e.err)
		_, err := c.Request(natstest.Context(t), "tool.bad.x", "bad", nil)
		if !errors.Is(err, e.want) || bus.Retryable(err) != e.retryable || !strings.Contains(err.Error(), e.err.Error()) {
			t.Errorf("%v became %v (retryable %v)", e.err, err, bus.Retryable(err))
		}
	}
}

func TestDeadlineCrossesTheBus(t *testing.T) {
	c, b, _ := pair(t)
	respond(t, b, "tool.slow.x", "slow", func(q *bus.Request) {
		at, _ := q.Context().Deadline()
		<-q.Context().Done()
		_ = q.Reply(fmt.Appendf(nil, "%d %v", at.UnixMilli(), q.Context().Err()))
	})
	// A request that comes after its deadline is not handled: then it was too short for this machine.
	for wait := 100 * time.Millisecond; ; wait *= 2 {
		at, got := time.Now().Add(wait), make(chan bus.Reply, 1)
		hdr := nats.Header{}
		bus.SetDeadline(hdr, at)
		cancel, err := c.Send(natstest.Context(t), "tool.slow.x", "slow", hdr, nil, func(r bus.Reply) { got <- r })
		if err != nil {
			t.Fatal(err)
		}
		var r bus.Reply
		select {
		case r = <-got:
		case <-natstest.Context(t).Done():
			t.Fatal("the responder's context has not ended")
		}
		cancel()
		if errors.Is(r.Err, bus.ErrTimeout) && wait < natstest.Patience {
			continue
		}
		if want := fmt.Sprint(at.UnixMilli(), " ", context.DeadlineExceeded); r.Err != nil || string(r.Data) != want {
			t.Errorf("the responder's deadline and the end of its context: %s, %v, want %s", r.Data, r.Err, want)
		}
		return
	}
}

func TestNoAnswerInTimeIsATimeout(t *testing.T) {
	c, b, _ := pair(t)
	asked, err := b.Conn().SubscribeSync("tool.slow.x")
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Conn().Flush(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if _, err := c.Request(ctx, "tool.slow.x", "slow", nil); !errors.Is(err, bus.ErrTimeout) ||
		!errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v, want ErrTimeout", err)
	}
	m, err := asked.NextMsgWithContext(natstest.Context(t))
	if err != nil {
		t.Fatal(err)
	}
	want, _ := ctx.Deadline()
	if at, ok := bus.Deadline(m.Header); !ok || at.UnixMilli() != want.UnixMilli() {
		t.Errorf("the request says %v, %t; the caller's deadline is %v", at, ok, want)
	}
}

func TestGivingUpIsCancelled(t *testing.T) {
	c, b, _ := pair(t)
	came, leave := make(chan struct{}), make(chan struct{})
	t.Cleanup(func() { close(leave) })
	respond(t, b, "tool.slow.x", "slow", func(*bus.Request) { close(came); <-leave })
	ctx, cancel := context.WithCancel(natstest.Context(t))
	go func() { <-came; cancel() }()
	if _, err := c.Request(ctx, "tool.slow.x", "slow", nil); !errors.Is(err, bus.ErrCancelled) {
		t.Errorf("%v, want ErrCancelled", err)
	}
}

func TestSeveralAnswersComeInOrderUntilCancel(t *testing.T) {
	c, b, _ := pair(t)
	more, sent := make(chan struct{}), make(chan struct{})
	respond(t, b, "runner.r1", "r1", func(q *bus.Request) {
		defer close(sent)
		for i := range 20 {
			body := []byte(fmt.Sprint(i))
			if i%5 == 2 { // large ones must not be overtaken
				body = bytes.Repeat(append(body, ' '), bus.ClaimThreshold)
			}
			_ = q.Reply(body)
		}
		<-more
		_ = q.Reply([]byte("too late"))
	})
	got := make(chan string, 100)
	cancel, err := c.Send(natstest.Context(t), "runner.r1", "r1", nil, []byte("go"), func(r bus.Reply) {
		first, _, _ := strings.Cut(string(r.Data), " ")
		got <- first
	})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		if s := <-got; s != fmt.Sprint(i) {
			t.Fatalf("answer %d is %q", i, s)
		}
	}
	cancel()
	close(more)
	<-sent // so that the next answer comes behind it
	respond(t, b, "runner.r2", "r2", echo)
	if _, err := c.Request(natstest.Context(t), "runner.r2", "r2", nil); err != nil {
		t.Fatal(err)
	}
	if len(got) != 0 {
		t.Errorf("an answer came after cancel: %s", <-got)
	}
}

func TestAnswerAfterTheHandlerReturned(t *testing.T) {
	c, b, _ := pair(t)
	later := make(chan *bus.Request, 1)
	respond(t, b, "runner.r1", "r1", func(q *bus.Request) { later <- q })
	got := make(chan bus.Reply, 1)
	cancel, err := c.Send(natstest.Context(t), "runner.r1", "r1", nil, nil, func(r bus.Reply) { got <- r })
	if err != nil {
		t.Fatal(err)
	}
	defer cancel()
	q := <-later
	<-q.Context().Done() // the handler has returned
	if err := q.Reply([]byte("done")); err != nil {
		t.Fatal(err)
	}
	if r := <-got; string(r.Data) != "done" {
		t.Errorf("%+v", r)
	}
}

func TestLargeBodiesGoBothWays(t *testing.T) {
	c, b, _ := pair(t)
	respond(t, b, "tool.echo.say", "echo", func(q *bus.Request) {
		if q.Header.Get(bus.ClaimHeader) != "" {
			t.Error("the handler sees the claim")
		}
		_ = q.Reply(q.Data)
	})
	for _, n := range []int{bus.ClaimThreshold, bus.ClaimThreshold + 1, 10 << 20} { // the last is above max_payload
		body := bytes.Repeat([]byte("0123456789abcdef"), n/16+1)[:n]
		got, err := c.Request(natstest.Context(t), "tool.echo.say", "echo", body)
		if err != nil || !bytes.Equal(got, body) {
			t.Errorf("%d bytes came back as %d, %v", n, len(got), err)
		}
	}
}

func TestClaimThatIsGoneIsAnError(t *testing.T) {
	b := start(t)
	respond(t, b, "tool.echo.say", "echo", echo)
	answers, err := b.Conn().SubscribeSync(subject.Replies(b.Identity(), b.Instance()))
	if err != nil {
		t.Fatal(err)
	}
	// What a foreign client may send: a reference to nothing.
	err = b.Conn().PublishMsg(&nats.Msg{
		Subject: "tool.echo.say", Reply: subject.Reply(b.Identity(), "echo", b.Instance(), 1),
		Header: nats.Header{bus.ClaimHeader: {strings.Repeat("0", 64) + ".x"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if m, err := answers.NextMsgWithContext(natstest.Context(t)); err != nil ||
		m.Header.Get(bus.ErrorHeader) != string(bus.CodeNotFound) {
		t.Errorf("%+v, %v, want not_found", m, err)
	}
}

func TestReplyOutsideTheOwnNameIsDropped(t *testing.T) {
	c, b, _ := pair(t)
	handled := make(chan string, 10)
	r := respond(t, b, "tool.echo.say", "echo", func(q *bus.Request) {
		handled <- string(q.Data)
		_ = q.Reply([]byte("forged"))
	})
	for _, reply := range []string{
		ref("one").Commit(), ref("one").Cause(subject.Input, "w"), "_INBOX.x.y",
		subject.Reply("me", "other", "inst", 1), "reply.me.echo", "reply.me.echo.inst", "reply.me.echo.inst.1.2",
		"reply.me.echo.inst.01", "tool.echo.say",
	} {
		if err := b.Conn().PublishMsg(&nats.Msg{Subject: "tool.echo.say", Reply: reply, Data: []byte("evil")}); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Conn().Flush(); err != nil {
		t.Fatal(err)
	}
	if got, err := c.Request(natstest.Context(t), "tool.echo.say", "echo", []byte("honest")); err != nil ||
		string(got) != "forged" {
		t.Fatalf("%s, %v", got, err)
	}
	if first := <-handled; first != "honest" || len(handled) != 0 || r.Dropped() != 9 {
		t.Errorf("handled %q first, dropped %d, want the honest one alone", first, r.Dropped())
	}
	if _, err := b.LastCommit(natstest.Context(t), ref("one")); !errors.Is(err, bus.ErrNotFound) {
		t.Errorf("a commit was forged: %v", err)
	}
}

func TestRequestThatWantsNoAnswer(t *testing.T) {
	_, b, _ := pair(t)
	handled := make(chan error, 1)
	respond(t, b, "runner.r1", "r1", func(q *bus.Request) {
		if q.WantsReply() {
			t.Error("wants a reply")
		}
		handled <- q.Reply([]byte("x"))
	})
	if err := b.Publish(natstest.Context(t), "runner.r1", nil, []byte("release")); err != nil {
		t.Fatal(err)
	}
	if err := <-handled; err != nil {
		t.Errorf("answering nobody: %v", err)
	}
}

func TestAnswersOfStrangersAreNotTaken(t *testing.T) {
	c, b, _ := pair(t)
	asked, err := b.Conn().SubscribeSync("runner.r1")
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Conn().Flush(); err != nil {
		t.Fatal(err)
	}
	got := make(chan bus.Reply, 10)
	numbers := map[uint64]bool{}
	for range 3 {
		cancel, err := c.Send(natstest.Context(t), "runner.r1", "r1", nil, nil, func(r bus.Reply) { got <- r })
		if err != nil {
			t.Fatal(err)
		}
		defer cancel()
		m, err := asked.NextMsgWithContext(natstest.Context(t))
		if err != nil {
			t.Fatal(err)
		}
		a, err := subject.ParseReply(m.Reply)
		if err != nil || a.Responder != "r1" || a.Instance != c.Instance() || a.Caller != b.Identity() ||
			a.N < 1<<20 || numbers[a.N] {
			t.Fatalf("reply subject %s: want one that nobody can guess", m.Reply)
		}
		numbers[a.N] = true
		// A plugin may publish under its own name only.
		for _, subj := range []string{
			a.From("mallory").Subject(), subject.Reply(a.Caller, "r1", a.Instance, a.N+1),
			subject.Reply(a.Caller, "r1", "other", a.N), subject.Reply("other", "r1", a.Instance, a.N), m.Reply,
		} {
			if err := b.Conn().Publish(subj, []byte(subj)); err != nil {
				t.Fatal(err)
			}
		}
		if r := <-got; string(r.Data) != m.Reply {
			t.Errorf("took the answer on %s", r.Data)
		}
	}
	if len(got) != 0 {
		t.Errorf("took %s", (<-got).Data)
	}
}

func TestPanicIsAnInternalErrorAndNothingWorse(t *testing.T) {
	c, b, _ := pair(t)
	respond(t, b, "tool.bad.x", "bad", func(q *bus.Request) {
		if string(q.Data) == "panic" {
			panic("boom: secret")
		}
		echo(q)
	})
	_, err := c.Request(natstest.Context(t), "tool.bad.x", "bad", []byte("panic"))
	if !errors.Is(err, bus.ErrInternal) || strings.Contains(err.Error(), "secret") {
		t.Errorf("%v, want ErrInternal without the panic's text", err)
	}
	if _, err := c.Request(natstest.Context(t), "tool.bad.x", "bad", []byte("x")); err != nil {
		t.Errorf("the next request: %v", err)
	}
}

func TestOneAtATimeIsInOrder(t *testing.T) {
	c, b, _ := pair(t)
	var order []string
	done := make(chan struct{})
	respond(t, b, "runner.r1", "r1", func(q *bus.Request) {
		order = append(order, string(q.Data))
		if string(q.Data) == "99" {
			close(done)
		}
	}, bus.Concurrency(1))
	for i := range 100 {
		cancel, err := c.Send(natstest.Context(t), "runner.r1", "r1", nil, []byte(fmt.Sprint(i)), func(bus.Reply) {})
		if err != nil {
			t.Fatal(err)
		}
		defer cancel()
	}
	<-done
	for i, s := range order {
		if s != fmt.Sprint(i) {
			t.Fatalf("number %d is %s", i, s)
		}
	}
}

func TestRequestThatWaitedTooLongIsNotHandled(t *testing.T) {
	c, b, _ := pair(t)
	gate := make(chan struct{})
	var handled atomic.Int64
	respond(t, b, "tool.slow.x", "slow", func(q *bus.Request) { handled.Add(1); <-gate; echo(q) }, bus.Concurrency(1))
	got := make(chan bus.Reply, 2)
	for i := range 2 {
		h := nats.Header{}
		if i == 1 {
			bus.SetDeadline(h, time.Now().Add(time.Millisecond))
		}
		cancel, err := c.Send(natstest.Context(t), "tool.slow.x", "slow", h, nil, func(r bus.Reply) { got <- r })
		if err != nil {
			t.Fatal(err)
		}
		defer cancel()
	}
	<-time.After(5 * time.Millisecond) // the deadline passes
	close(gate)
	if r := <-got; r.Err != nil {
		t.Errorf("the first: %v", r.Err)
	}
	if r := <-got; !errors.Is(r.Err, bus.ErrTimeout) || handled.Load() != 1 {
		t.Errorf("the second: %v, %d handled", r.Err, handled.Load())
	}
}

func TestReplicasShareTheirRequests(t *testing.T) {
	s := natstest.Start(t)
	c := caller(t, natstest.Connect(t, s))
	var counts [2]atomic.Int64
	for i := range counts {
		respond(t, natstest.Connect(t, s), "hook.before_plan.p", "p", func(q *bus.Request) { counts[i].Add(1); echo(q) })
	}
	for range 100 {
		if _, err := c.Request(natstest.Context(t), "hook.before_plan.p", "p", nil); err != nil {
			t.Fatal(err)
		}
	}
	if a, b := counts[0].Load(), counts[1].Load(); a+b != 100 || a == 0 || b == 0 {
		t.Errorf("%d and %d, want 100 in all and some each", a, b)
	}
}

func TestTraceCrossesTheBus(t *testing.T) {
	c, b, _ := pair(t)
	ids := make(chan string, 1)
	respond(t, b, "tool.echo.say", "echo", func(q *bus.Request) {
		if v := q.Header["traceparent"]; len(v) != 1 {
			t.Errorf("header %v, want a lower-case traceparent", q.Header)
		}
		ids <- trace.SpanContextFromContext(q.Context()).TraceID().String()
		echo(q)
	})
	ctx := telemetry.EnsureTrace(natstest.Context(t))
	for range 2 {
		if _, err := c.Request(ctx, "tool.echo.say", "echo", nil); err != nil {
			t.Fatal(err)
		}
		if id := <-ids; id != telemetry.TraceID(ctx) {
			t.Errorf("trace %s, want %s", id, telemetry.TraceID(ctx))
		}
	}
	if _, err := c.Request(natstest.Context(t), "tool.echo.say", "echo", nil); err != nil {
		t.Fatal(err)
	}
	if id := <-ids; id == telemetry.TraceID(ctx) || strings.Trim(id, "0") == "" {
		t.Errorf("a request without a trace has the trace %q", id)
	}
}

func TestWaitingRequestEndsWithTheConnection(t *testing.T) {
	c, b, s := pair(t)
	came := make(chan struct{})
	respond(t, b, "tool.slow.x", "slow", func(q *bus.Request) { close(came); <-q.Context().Done() })
	go func() { <-came; s.Shutdown() }()
	_, err := c.Request(natstest.Context(t), "tool.slow.x", "slow", nil)
	if !errors.Is(err, bus.ErrUnavailable) {
		t.Errorf("%v, want ErrUnavailable", err)
	}
	if _, err := c.Send(natstest.Context(t), "tool.slow.x", "slow", nil, nil, func(bus.Reply) {}); !errors.Is(err,
		bus.ErrUnavailable) {
		t.Errorf("sending without a connection: %v, want ErrUnavailable at once", err)
	}
	if c.Waiting() != 0 {
		t.Errorf("%d requests still wait", c.Waiting())
	}
}

func TestDrainAnswersWhatCame(t *testing.T) {
	c, b, _ := pair(t)
	came, gate := make(chan struct{}), make(chan struct{})
	respond(t, b, "tool.slow.x", "slow", func(q *bus.Request) {
		if len(q.Data) > 0 { // not one that comes before the others are refused
			close(came)
			<-gate
		}
		echo(q)
	})
	got := make(chan bus.Reply, 1)
	if _, err := c.Send(natstest.Context(t), "tool.slow.x", "slow", nil, []byte("x"),
		func(r bus.Reply) { got <- r }); err != nil {
		t.Fatal(err)
	}
	<-came
	drained := make(chan error, 1)
	ctx := natstest.Context(t)
	go func() { drained <- b.Drain(ctx) }()
	natstest.Eventually(t, "new requests to be refused", func() bool {
		_, err := c.Request(natstest.Context(t), "tool.slow.x", "slow", nil)
		return errors.Is(err, bus.ErrUnavailable)
	})
	select {
	case err := <-drained:
		t.Fatalf("drained before the handler returned: %v", err)
	default:
	}
	close(gate)
	if r := <-got; string(r.Data) != "x" {
		t.Errorf("%+v", r)
	}
	if err := <-drained; err != nil {
		t.Error(err)
	}
	<-b.Closed()
}

func TestDrainEndsWithItsContext(t *testing.T) {
	c, b, _ := pair(t)
	came, ended := make(chan struct{}), make(chan struct{})
	respond(t, b, "tool.slow.x", "slow", func(q *bus.Request) { close(came); <-q.Context().Done(); close(ended) })
	if _, err := c.Send(natstest.Context(t), "tool.slow.x", "slow", nil, nil, func(bus.Reply) {}); err != nil {
		t.Fatal(err)
	}
	<-came
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	_ = b.Drain(ctx)
	<-ended
	<-b.Closed()
}

func TestLiveEventsAreTheSessionsOwn(t *testing.T) {
	ctx, b := natstest.Context(t), start(t)
	for _, subj := range []string{ref("one").Live("plan", "requested"), ref("one").Stream()} {
		sub, err := b.Conn().SubscribeSync(subj)
		if err != nil {
			t.Fatal(err)
		}
		if err := b.PublishLive(ctx, ref("one"), subj, nil, []byte("x")); err != nil {
			t.Fatal(err)
		}
		m, err := sub.NextMsgWithContext(ctx)
		if err != nil || m.Subject != subj || m.Header.Get("traceparent") == "" {
			t.Errorf("%+v, %v", m, err)
		}
	}
	for _, subj := range []string{
		ref("one").Commit(), ref("two").Live("plan", "requested"), ref("two").Stream(),
		ref("one").Cause(subject.Input, "w"), "agent.ada.one.*.x", "tool.x.y", "",
	} {
		if err := b.PublishLive(ctx, ref("one"), subj, nil, []byte("x")); !errors.Is(err, bus.ErrInvalidArgument) {
			t.Errorf("%q: %v, want ErrInvalidArgument", subj, err)
		}
	}
}
