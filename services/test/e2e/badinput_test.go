package e2e_test

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/coreapi"
	. "skandha.dev/services/test/e2e/e2etest"
)

// bad is something that nobody should send, and what its sender learns.
type bad struct {
	name    string
	subject string // default: an input of main.s
	header  nats.Header
	body    string

	refused bool   // the publish itself fails
	ends    string // with this code; "recorded" for an answer
	dead    string // a dead letter whose reason holds this
	answer  string // an answer that is refused in the log, with a reason that holds this
	noise   bool   // it counts as an answer of the server that was sent to the wrong subject
}

const inputOf = "agent.main.s.sense.input.stranger"

func badInputs() []bad {
	nested := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	huge := strings.Repeat("9", 3<<20)
	long := strings.Repeat("x", 5<<20)
	envelope := func(spec, typ string) string {
		return fmt.Sprintf(`{"specversion":%q,"id":"1","source":"test","type":%q,"data":{"text":"hello"}}`, spec, typ)
	}
	kind := func(k string) string { return "agent.main.s.sense." + k + ".stranger" }
	return []bad{
		{name: "no JSON", body: `{"text":`, ends: "malformed"},
		{name: "not even close", body: "\x00\x01\x02", ends: "malformed"},
		{name: "empty body", body: "", ends: "malformed"},
		{name: "blank body", body: " \n\t ", ends: "malformed"},
		{name: "null", body: "null", ends: "malformed"},
		{name: "number", body: "42", ends: "malformed"},
		{name: "array", body: `[{"text":"x"}]`, ends: "malformed"},
		{name: "string", body: `"hello"`, ends: "malformed"},
		{name: "nothing said", body: `{}`, ends: "malformed"},
		{name: "trailing garbage", body: `{"text":"x"}{"text":"y"}`, ends: "malformed"},
		{name: "text is a number", body: `{"text":5}`, ends: "malformed"},
		{name: "text is a list", body: `{"text":["x"]}`, ends: "malformed"},
		{name: "text is an object", body: `{"text":{"x":1}}`, ends: "malformed"},
		{name: "id is an object", body: `{"text":"x","id":{}}`, ends: "malformed"},
		{name: "id is too long", body: `{"text":"x","id":"` + strings.Repeat("i", 129) + `"}`, ends: "malformed"},
		{name: "unknown mode", body: `{"text":"x","mode":"telepathy"}`, ends: "malformed"},
		{name: "huge mode", body: `{"text":"x","mode":"` + long + `"}`, ends: "malformed"},
		{name: "unknown specversion", body: envelope("9.9", "skandha.sense.input.v1"), ends: "malformed"},
		{name: "huge specversion", body: envelope(long, "skandha.sense.input.v1"), ends: "malformed"},
		{name: "specversion is a number", body: `{"specversion":1,"text":"x"}`, ends: "malformed"},
		{name: "unknown version of the type", body: envelope("1.0", "skandha.sense.input.v2"), ends: "malformed"},
		{name: "another type", body: envelope("1.0", "skandha.commit.v1"), ends: "malformed"},
		{name: "huge type", body: envelope("1.0", long), ends: "malformed"},
		{
			name: "envelope without data", body: `{"specversion":"1.0","id":"1","source":"t","type":"skandha.sense.input.v1"}`,
			ends: "malformed",
		},
		{
			name: "data is text", body: `{"specversion":"1.0","id":"1","source":"t","type":"skandha.sense.input.v1","data":"x"}`,
			ends: "malformed",
		},
		{name: "10 MB", body: `{"text":"` + strings.Repeat("x", 10<<20) + `"}`, refused: true},
		{name: "as large as the server takes", body: `{"text":"` + strings.Repeat("x", 8<<20-600) + `"}`, ends: "malformed"},
		{
			name: "a huge text that grows when it is escaped",
			body: `{"text":"x","mode":"` + strings.Repeat("\x7f", 4<<20) + `"}`, ends: "malformed",
		},
		{name: "invalid UTF-8", body: "{\"text\":\"\xff\xfe\"}", ends: "malformed"},
		{name: "lone surrogate", body: `{"text":"\ud800"}`, ends: "recorded"},
		{name: "control characters", body: `{"text":"\u0000\u001b[2J\r\n"}`, ends: "recorded"},
		{name: "text in two keys", body: `{"text":"x","text":"y"}`, ends: "malformed"},
		{name: "unknown fields", body: `{"text":"x","commit_id":"y","principal":"root"}`, ends: "recorded"},
		{name: "nested deeply as text", body: `{"text":` + nested(200_000) + `}`, ends: "malformed"},
		{name: "nested deeply beside the text", body: `{"text":"x","more":` + nested(200_000) + `}`, ends: "malformed"},
		{name: "nested less deeply beside the text", body: `{"text":"x","more":` + nested(5000) + `}`, ends: "recorded"},
		{name: "huge number as text", body: `{"text":` + huge + `}`, ends: "malformed"},
		{name: "huge exponent", body: `{"text":"x","n":1e999999999}`, ends: "recorded"},
		{name: "huge sequence", subject: kind("cancel"), body: `{"sequence":` + huge + `}`, dead: "malformed"},
		{name: "negative sequence", subject: kind("cancel"), body: `{"sequence":-1}`, dead: "malformed"},

		{name: "unknown agent", subject: "agent.nobody.s.sense.input.stranger", body: `{"text":"x"}`, ends: "unknown_agent"},
		{name: "unknown agent and garbage", subject: "agent.nobody.s.sense.input.stranger", body: `}`, ends: "malformed"},
		{name: "unknown kind of cause", subject: kind("telepathy"), body: `{"text":"x"}`, ends: "unknown_cause"},
		{
			name: "a kind that is not for strangers", subject: kind("perceived"), body: `{"sequence":1,"disposition":"started"}`,
			ends: "unknown_cause",
		},
		{name: "odd writer", subject: "agent.main.s.sense.input.w%r", body: `{"text":"x"}`, dead: "writer"},
		{name: "odd kind", subject: "agent.main.s.sense.in|put.stranger", body: `{"text":"x"}`, dead: "subject"},
		{name: "odd session", subject: "agent.main.séance.sense.input.stranger", body: `{"text":"x"}`, dead: "session"},
		// two more tokens: no stream takes it
		{name: "odd agent", subject: "agent.m/../n.s.sense.input.stranger", body: `{"text":"x"}`, refused: true},
		{
			name: "long session", subject: "agent.main." + strings.Repeat("s", 65) + ".sense.input.stranger",
			body: `{"text":"x"}`, dead: "session",
		},
		{name: "no writer", subject: "agent.main.s.sense.input", body: `{"text":"x"}`, refused: true},
		{name: "one token too many", subject: inputOf + ".x", body: `{"text":"x"}`, refused: true},

		{name: "a timer that core did not write", subject: kind("timer"), body: `{"id":"t1-p1-c0"}`, dead: "only core"},
		{name: "a cancel that is garbage", subject: kind("cancel"), body: `garbage`, dead: "malformed"},
		{name: "a cancel of nothing", subject: kind("cancel"), body: `{}`, dead: "names no input"},
		{
			name: "a cancel of the future", subject: kind("cancel"), body: `{"sequence":18446744073709551615}`,
			dead: "no open input",
		},
		{name: "a confirmation that is garbage", subject: kind("confirmation"), body: `[]`, answer: "malformed"},
		{
			name: "a confirmation of nothing", subject: kind("confirmation"),
			body: `{"confirmation_id":"x","hash":"y","approved":true}`, answer: "no confirmation request is pending",
		},
		{
			name: "a huge confirmation that is garbage", subject: kind("confirmation"), body: strings.Repeat("x", 8<<20-300),
			answer: "malformed",
		},
		{
			name: "a confirmation to a session that is not there", subject: "agent.main.nowhere.sense.confirmation.stranger",
			body: `{"confirmation_id":"x","hash":"y","approved":true}`, dead: "no confirmation request is pending",
		},
		{name: "an unknown command", subject: kind("command"), body: `{"name":"sudo"}`, ends: "unknown_command"},
		{name: "a huge command", subject: kind("command"), body: `{"name":"` + long + `"}`, ends: "unknown_command"},
		{name: "a command that is garbage", subject: kind("command"), body: `"reset"`, ends: "malformed"},
		{
			name: "a command with wrong arguments", subject: kind("command"), body: `{"name":"tools","args":"all"}`,
			ends: "malformed",
		},

		{
			name: "a header that looks like the server's", header: nats.Header{"Status": {"503"}}, body: `{"text":"x"}`,
			ends: "recorded",
		},
		{name: "an empty body with such a header", header: nats.Header{"Status": {"404"}}, body: "", ends: "malformed"},
		{
			name:   "headers of direct get",
			header: nats.Header{"Nats-Sequence": {"1"}, "Nats-Subject": {"agent.main.s.commit"}, "Nats-Stream": {"X"}},
			body:   `{"text":"x"}`, noise: true,
		},
		{name: "a fence", header: nats.Header{"Nats-Expected-Last-Sequence": {"1"}}, body: `{"text":"x"}`, refused: true},
		{name: "a rollup", header: nats.Header{"Nats-Rollup": {"all"}}, body: `{"text":"x"}`, refused: true},
		{
			name:   "a schedule",
			header: nats.Header{"Nats-Schedule": {"@at 2020-01-01T00:00:00Z"}, "Nats-Schedule-Target": {"agent.main.s.commit"}},
			body:   `[]`, refused: true,
		},
		{name: "a time to live", header: nats.Header{"Nats-TTL": {"1s"}}, body: `{"text":"x"}`, refused: true},
		{
			name: "a trace that is garbage", header: nats.Header{"traceparent": {"00-zz"}}, body: `{"text":"x"}`,
			ends: "recorded",
		},
		{
			name: "a claim on nothing", header: nats.Header{"Skandha-Claim": {"nothing"}}, body: `{"text":"x"}`,
			ends: "recorded",
		},
	}
}

// maxReason is how long a reason may be that is written into the log.
const maxReason = 8 << 10

// Whatever is sent, its sender gets a clear error, or the log a terminal event
// with the reason, or the stream DEAD a copy with the reason; and the session
// goes on.
func TestBadInput(t *testing.T) {
	t.Parallel()
	s := Start(t, Options{})
	ref := Ref("s")
	s.Ended(s.Say(ref, "warm"))
	for _, b := range badInputs() {
		t.Run(b.name, func(t *testing.T) {
			if b.subject == "" {
				b.subject = inputOf
			}
			seq, err := s.Raw(b.subject, b.header, []byte(b.body))
			switch {
			case b.refused && err == nil:
				t.Errorf("it was stored at %d", seq)
			case b.refused:
				t.Logf("its sender gets: %v", err)
			case err != nil:
				t.Fatalf("it was refused: %v", err)
			case b.dead != "":
				if reason := s.DeadLetter(seq); !strings.Contains(reason, b.dead) || len(reason) > maxReason {
					t.Errorf("the dead letter says %.300q (%d bytes); want it to mention %q", reason, len(reason), b.dead)
				}
			case b.answer != "":
				refused(t, s, seq, b.answer)
			case b.noise: // the session goes on, as below
			default:
				ended(t, s, seq, b.ends)
			}
			if end := s.Ended(s.Say(ref, "a normal one")); end.Failed != "" || end.Answer == "" {
				t.Errorf("a normal input after it ended as %+v", end)
			}
		})
	}
	healthy(t, s)
	s.Verify()
}

// refused checks that an answer has a commit which says why it does not count.
func refused(t *testing.T, s *System, seq uint64, want string) {
	t.Helper()
	var got []string
	s.Tail.Await(t, "the answer is refused", func(l *Log) bool { got = l.Answered[seq]; return len(got) > 0 })
	if len(got) != 1 || !strings.HasPrefix(got[0], "refused: ") || !strings.Contains(got[0], want) ||
		len(got[0]) > maxReason {
		t.Errorf("it was answered %.300q; want it refused with %q", got, want)
	}
}

func ended(t *testing.T, s *System, seq uint64, want string) {
	t.Helper()
	end := s.Ended(seq)
	got := end.Failed
	if got == "" {
		got = "recorded"
	}
	if got != want {
		t.Errorf("it ended as %s (%.300s), want %s", got, end.Reason, want)
	}
	if end.Failed != "" && end.Reason == "" || len(end.Reason) > maxReason {
		t.Errorf("its reason has %d bytes: %.300q", len(end.Reason), end.Reason)
	}
}

// healthy checks that no core has panicked or taken anything for poison.
func healthy(t *testing.T, s *System) {
	t.Helper()
	var st coreapi.Status
	Eventually(t, "a core says how it is", func() (ok bool) {
		var err error
		st, err = s.Status()
		return err == nil
	})
	for _, what := range []string{"panics", "poison", "mismatches"} {
		if st.Counters[what] > 0 {
			t.Errorf("%s counted %d %s", st.Instance, st.Counters[what], what)
		}
	}
}

// A message whose header is no header, from a client that speaks the protocol by
// hand.
func TestUnreadableHeader(t *testing.T) {
	t.Parallel()
	s := Start(t, Options{})
	ref := Ref("s")
	s.Ended(s.Say(ref, "warm"))
	c, err := net.DialTimeout("tcp", strings.TrimPrefix(s.URL, "nats://"), Patience)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	in, token := bufio.NewReader(c), s.Invite("hand")
	for _, head := range []string{
		"NATS/1.0\r\nno colon\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\n", "\r\n\r\n", "NATS/1.0 503\r\n\r\n",
		"NATS/1.0\r\n: x\r\n\r\n",
	} {
		body := `{"text":"hello"}`
		before := 0
		s.Tail.See(func(l *Log) { before = len(l.Causes("main.s")) })
		if _, err := fmt.Fprintf(c, "CONNECT {\"headers\":true,\"verbose\":false,\"jwt\":%q}\r\nHPUB %s %d %d\r\n%s%s\r\nPING\r\n",
			token, ref.Cause(subject.Input, "hand"), len(head), len(head)+len(body), head, body); err != nil {
			t.Fatal(err)
		}
		for {
			line, err := in.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasPrefix(line, "PONG") {
				break
			}
		}
		var seq uint64
		s.Tail.Await(t, "it is stored", func(l *Log) bool {
			causes := l.Causes("main.s")
			if len(causes) > before {
				seq = causes[len(causes)-1].Seq
			}
			return len(causes) > before
		})
		t.Logf("%q: %+v", head, s.Ended(seq))
		if end := s.Ended(s.Say(ref, "a normal one")); end.Failed != "" {
			t.Errorf("a normal input after it ended as %+v", end)
		}
	}
	healthy(t, s)
	s.Verify()
}

// Results that together would be too large, and one that no message can carry: alone, as
// it takes the bus a while to store it.
func TestHugeResults(t *testing.T) {
	t.Parallel()
	s := Start(t, Options{Relaxed: true})
	s.AwaitExecutors(2)
	for _, c := range []struct{ size, results int }{{1 << 20, 3}, {9 << 20, 1}} {
		calls := Round{}
		for i := range c.results {
			calls = append(calls, Call{ID: fmt.Sprint(i), Tool: ToolOnce, Args: Args{Big: c.size}})
		}
		seq := s.Do(Ref("s"), Script{Rounds: []Round{calls}})
		end := s.Ended(seq)
		var results [][]string
		s.Tail.See(func(l *Log) {
			for _, k := range l.CallsOf(seq) {
				results = append(results, k.Results)
			}
		})
		t.Logf("%d results of %d bytes: %v, %v", c.results, c.size, results, end.Failed)
		for _, r := range results {
			if r[0] != "success" && r[0] != "result_too_large" {
				t.Errorf("a result of %d bytes ended as %v", c.size, r)
			}
		}
		if end.Failed != "" {
			t.Errorf("the turn ended as %+v", end)
		}
	}
	if end := s.Ended(s.Say(Ref("s"), "after")); end.Failed != "" {
		t.Errorf("the turn after ended as %+v", end)
	}
	healthy(t, s)
	s.Verify()
}

// Rule 15: somebody who may publish commits writes one that is none. The session
// locks, its open input ends, and /reset opens it again; others are not touched.
func TestAForgedCommit(t *testing.T) {
	t.Parallel()
	s := Start(t, Options{Cores: 2})
	for _, c := range s.Cores {
		c.Expect("ALARM")
	}
	ref := Ref("s")
	s.Ended(s.Say(ref, "warm"))
	s.AwaitCores(2)
	s.AwaitExecutors(2)
	open := s.Do(ref, once(Args{N: 1, MS: 60_000}))
	awaitEffect(t, s, open)
	last, err := s.Bus.LastCommitSeq(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Bus.AppendCommit(t.Context(), ref, []byte(`[]`), last); err != nil {
		t.Fatal(err)
	}
	if end := s.Ended(open); end.Failed == "" {
		t.Errorf("the open input ended as %+v", end)
	} else {
		t.Logf("the open input ended as %+v", end)
	}
	if end := s.Ended(s.Say(ref, "while it is locked")); end.Failed != "session_locked" {
		t.Errorf("an input to the locked session ended as %+v", end)
	}
	if end := s.Ended(s.Say(Ref("other"), "elsewhere")); end.Failed != "" {
		t.Errorf("an input to another session ended as %+v", end)
	}
	if end := s.Ended(s.Cause(ref, subject.Command, "person", "", event.Command{Name: "reset"})); end.Failed != "" {
		t.Errorf("/reset ended as %+v", end)
	}
	if end := s.Ended(s.Say(ref, "again")); end.Failed != "" {
		t.Errorf("an input after /reset ended as %+v", end)
	}
	for seq, ends := range terminals(s) {
		if len(ends) != 1 {
			t.Errorf("the cause at %d has %d terminal events", seq, len(ends))
		}
	}
}

func terminals(s *System) map[uint64][]Terminal {
	out := map[uint64][]Terminal{}
	s.Tail.See(func(l *Log) {
		for k, v := range l.Terminals {
			out[k] = v
		}
	})
	return out
}
