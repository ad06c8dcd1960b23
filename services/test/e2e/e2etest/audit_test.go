package e2etest

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// book writes logs by hand, so that the audit can be shown every kind of lie.
type book struct {
	entries []Entry
	prev    map[string]uint64
	effects []Effect
	acked   []Acked
	ids     int
}

var clock = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func (b *book) cause(subject, body string) uint64 {
	seq := uint64(len(b.entries) + 1)
	b.entries = append(b.entries,
		Entry{Seq: seq, Time: clock.Add(time.Duration(seq) * time.Second), Subject: subject, Data: []byte(body)})
	b.acked = append(b.acked, Acked{seq, subject, body})
	return seq
}

// commit writes a decision; header and events are JSON, the header's beginning is
// filled in.
//
//nolint:unparam // the session is said where a reader looks for it
func (b *book) commit(session, header string, events ...string) uint64 {
	if b.prev == nil {
		b.prev = map[string]uint64{}
	}
	b.ids++
	seq := uint64(len(b.entries) + 1)
	head := fmt.Sprintf(`{"commit_id":"c%d","prev":%d,"digest":"d","now":%q,%s}`, b.ids, b.prev[session],
		clock.Add(time.Duration(b.ids)*time.Second).Format(time.RFC3339), header)
	batch := []string{fmt.Sprintf(`{"type":"skandha.commit.v1","data":%s}`, head)}
	for _, e := range events {
		typ, data, _ := strings.Cut(e, " ")
		batch = append(batch, fmt.Sprintf(`{"type":"skandha.%s.v1","data":%s}`, typ, data))
	}
	b.entries = append(b.entries,
		Entry{
			Seq: seq, Time: clock.Add(time.Duration(seq) * time.Second), Subject: "agent." + session + ".commit",
			Data: []byte("[" + strings.Join(batch, ",") + "]"),
		})
	b.prev[session] = seq
	return seq
}

// story is a log that is as it should be: a turn with a call that runs, one that
// a person is asked about, and one that is skipped.
func story() *book {
	b := &book{}
	b.cause("agent.main.s.sense.input.alice", `{"text":"x","id":"i"}`)
	b.commit("main.s", `"trigger":{"kind":"cause","sequence":1,"cause":"input","writer":"alice"},"cursor":1,"driver":1`,
		`sense.perceived {"sequence":1,"input_id":"i","writer":"alice","disposition":"started"}`,
		`plan.requested {"plan":"t1-p1","attempt":"p1","provider":"P"}`)
	b.commit("main.s", `"trigger":{"kind":"reply","call":"t1-p1","attempt":"p1"},"cursor":1,"driver":1`,
		`plan.completed {"plan":"t1-p1","attempt":"p1","steps":[
			{"call":"A","call_id":"a","tool":"e2e:once"},{"call":"B","call_id":"b","tool":"e2e:risky"},
			{"call":"C","call_id":"c","tool":"e2e:once","depends_on":["B"]}]}`,
		`act.requested {"call":"A","tool":"e2e:once","args":{},"hash":"h","attempt":"a1","runner":"R"}`,
		`ui.tool_call_request {"confirmation_id":"B","args":{"n":1},"hash":"k","expires_at":"2026-01-01T01:00:00Z"}`)
	b.cause("agent.main.s.sense.confirmation.bob", `{"confirmation_id":"B","hash":"k","approved":true}`)
	b.commit("main.s",
		`"trigger":{"kind":"cause","sequence":4,"cause":"confirmation","writer":"bob"},"cursor":4,"driver":4`,
		`act.confirmed {"call":"B","hash":"k","outcome":"approved","by":"bob"}`,
		`act.requested {"call":"B","tool":"e2e:risky","args":{"n":1},"hash":"k","attempt":"b1","runner":"R"}`)
	b.commit("main.s", `"trigger":{"kind":"reply","call":"B","attempt":"b1"},"cursor":4,"driver":4`,
		`act.completed {"call":"B","tool":"e2e:risky","result":{"success":false,"error":{"code":"tool_failed"}}}`,
		`act.completed {"call":"C","tool":"e2e:once","result":{"success":false,"error":{"code":"skipped"}}}`)
	b.commit("main.s", `"trigger":{"kind":"reply","call":"A","attempt":"a1"},"cursor":4,"driver":0`,
		`act.completed {"call":"A","tool":"e2e:once","result":{"success":true}}`,
		`reflect.recorded {"sequence":1,"answer":"done"}`)
	b.effects = []Effect{
		{Call: "A", Attempt: "a1", Runner: "R", Tool: "e2e:once"}, {Call: "B", Attempt: "b1", Runner: "R", Tool: "e2e:risky"},
	}
	return b
}

// replace changes what an entry says.
func (b *book) replace(t *testing.T, seq int, from, to string) {
	t.Helper()
	e := &b.entries[seq-1]
	if !strings.Contains(string(e.Data), from) {
		t.Fatalf("entry %d does not say %q: %s", seq, from, e.Data)
	}
	e.Data = []byte(strings.Replace(string(e.Data), from, to, 1))
}

func TestTheAuditIsContentWithASoundLog(t *testing.T) {
	b := story()
	for _, fault := range Audit(b.entries, b.effects, b.acked) {
		t.Error(fault)
	}
}

// Every lie is found, and named.
func TestTheAuditFindsEveryLie(t *testing.T) {
	change := func(seq int, from, to string) func(*testing.T, *book) {
		return func(t *testing.T, b *book) { b.replace(t, seq, from, to) }
	}
	for _, c := range []struct {
		name string
		lie  func(*testing.T, *book)
		want string
	}{
		{"the chain is broken", change(3, `"prev":2`, `"prev":1`), "says that it follows 1"},
		{"a fence did not hold", change(5, `"prev":3`, `"prev":2`), "says that it follows 2"},
		{"the cursor goes back", change(6, `"cursor":4`, `"cursor":1`), "moves the cursor back"},
		{"the cursor looks ahead", change(2, `"cursor":1`, `"cursor":9`), "which was not there"},
		{"a commit's id comes twice", change(3, `"commit_id":"c2"`, `"commit_id":"c1"`), "was used before"},
		{"time goes back", change(3, `00:00:02Z`, `00:00:00Z`), "time goes back"},
		{"no digest", change(3, `"digest":"d"`, `"digest":""`), "no digest"},
		{"not a commit", func(_ *testing.T, b *book) { b.entries[2].Data = []byte(`[]`) }, "cannot be read"},
		{
			"a cause is decided twice",
			change(6, `"kind":"reply","call":"B","attempt":"b1"`, `"kind":"cause","sequence":4,"writer":"bob"`),
			"decides about cause 4 again",
		},
		{"a cause of somebody else", change(5, `"writer":"bob"`, `"writer":"eve"`), "by eve, not bob"},
		{"no end", change(7, `reflect.recorded`, `ui.message`), "has 0 terminal events"},
		{"two ends", func(_ *testing.T, b *book) {
			b.commit("main.s", `"trigger":{"kind":"progress"},"cursor":4,"driver":0`,
				`turn.failed {"sequence":1,"code":"cancelled"}`)
		}, "has 2 terminal events"},
		{
			"an end of what nobody said", change(7, `"sequence":1,"answer"`, `"sequence":4,"answer"`),
			"input at 1 has 0 terminal events",
		},
		{"a driver of nothing", change(7, `"driver":0`, `"driver":4`), "the driver 4"},
		{"an open turn without a driver", change(3, `"driver":1`, `"driver":0`), "the driver 0"},
		{
			"a call without a result", change(6, `act.completed.v1","data":{"call":"C"`, `ui.message.v1","data":{"call":"C"`),
			"call C has 0 results",
		},
		{"a call with two results", change(7, `"call":"A","tool"`, `"call":"B","tool"`), "has its result already"},
		{
			"a result of a call that nobody requested", change(7, `"call":"A","tool"`, `"call":"Z","tool"`),
			`nobody requested call "Z"`,
		},
		{"an attempt that was begun before", change(5, `"attempt":"b1"`, `"attempt":"a1"`), "was begun before"},
		{
			"a step before what it depends on", change(5, `"call":"B","tool":"e2e:risky"`, `"call":"C","tool":"e2e:once"`),
			"on which it depends",
		},
		{"an answer of which nothing came", func(_ *testing.T, b *book) {
			b.cause("agent.main.s.sense.confirmation.eve", `{"confirmation_id":"B","hash":"z","approved":true}`)
		}, "the answer at 8 was decided 0 times"},
		{"an answer that counts and is refused", func(_ *testing.T, b *book) {
			b.commit("main.s",
				`"trigger":{"kind":"cause","sequence":4,"cause":"confirmation","writer":"bob"},"cursor":4,"driver":0`,
				`security.audited {"principal":"bob","action":"confirmation","effect":"deny","reason":"no"}`)
		}, "the answer at 4 was decided 2 times"},
		{"a risky call without an approval", change(5, `act.confirmed`, `ui.message`), "without an approval"},
		{"a call that was denied", func(t *testing.T, b *book) {
			b.replace(t, 5, `"outcome":"approved"`, `"outcome":"denied"`)
			b.replace(t, 4, `true`, `false`)
		}, "without an approval"},
		{"a call that somebody granted elsewhere", func(_ *testing.T, b *book) {
			b.cause("agent.main.s.sense.input.alice", `{"text":"x","id":"j"}`)
			b.commit("main.s", `"trigger":{"kind":"cause","sequence":8,"cause":"input","writer":"alice"},"cursor":8,"driver":8`,
				`sense.perceived {"sequence":8,"input_id":"j","writer":"alice","disposition":"started"}`,
				`plan.requested {"plan":"t8-p1","attempt":"p2","provider":"P"}`)
			b.commit("main.s", `"trigger":{"kind":"reply","call":"t8-p1","attempt":"p2"},"cursor":8,"driver":8`,
				`plan.completed {"plan":"t8-p1","attempt":"p2","steps":[{"call":"D","call_id":"d","tool":"e2e:risky"}]}`,
				`act.requested {"call":"D","tool":"e2e:risky","args":{},"hash":"k","attempt":"d1","runner":"R"}`)
		}, "without an approval"},
		{
			"a grant that nobody gave", change(5, `"by":"bob"`, `"by":"bob","always":{"tool":"e2e:risky","hash":"k"}`),
			"it grants",
		},
		{"a grant of more than was shown", func(t *testing.T, b *book) {
			b.replace(t, 4, `"approved":true`, `"approved":true,"always":{"tool":"e2e:risky","hash":"z"}`)
			b.replace(t, 5, `"by":"bob"`, `"by":"bob","always":{"tool":"e2e:risky","hash":"z"}`)
		}, "and shown was"},
		{"an approval of nobody", change(4, `"approved":true`, `"approved":false`), "the person said approved=false"},
		{"an approval of other arguments", change(4, `"hash":"k"`, `"hash":"z"`), "other arguments"},
		{"an approval by somebody else", change(5, `"by":"bob"`, `"by":"eve"`), "no answer about B"},
		{"other arguments than were shown", change(5, `"args":{"n":1}`, `"args":{"n":2}`), "shown was"},
		{"an approval that came too late", change(3, `2026-01-01T01:00:00Z`, `2026-01-01T00:00:01Z`), "had expired"},
		{"an expiry that nobody announced", change(5, `"outcome":"approved"`, `"outcome":"expired"`), "is no timer"},
		{
			"an effect twice", func(_ *testing.T, b *book) { b.effects = append(b.effects, b.effects[0]) },
			"had its effect 2 times",
		},
		{"an attempt twice", func(_ *testing.T, b *book) { b.effects = append(b.effects, b.effects[0]) }, "ran twice"},
		{
			"a success without an effect", func(_ *testing.T, b *book) { b.effects = b.effects[1:] },
			"succeeded without an effect",
		},
		{"an effect of a call that was skipped", func(_ *testing.T, b *book) {
			b.effects = append(b.effects, Effect{Call: "C", Attempt: "c1", Runner: "R"})
		}, "ended as skipped and had its effect"},
		{
			"an effect that was not asked for", func(_ *testing.T, b *book) { b.effects[0].Attempt = "zz" }, "never given to it",
		},
		{"an effect at another runner", func(_ *testing.T, b *book) { b.effects[0].Runner = "Q" }, "never given to it"},
		{"an effect of nothing", func(_ *testing.T, b *book) { b.effects[0].Call = "Z" }, "which nobody requested"},
		{"an acknowledged input is lost", func(_ *testing.T, b *book) {
			b.acked = append(b.acked, Acked{99, "agent.main.s.sense.input.alice", "{}"})
		}, "is not in the log"},
		{"an acknowledged input was replaced", func(_ *testing.T, b *book) { b.acked[0].Body = "{}" }, "where the log has"},
		{"an id is taken twice", func(_ *testing.T, b *book) {
			seq := b.cause("agent.main.s.sense.input.alice", `{"text":"y","id":"i"}`)
			b.commit("main.s",
				fmt.Sprintf(`"trigger":{"kind":"cause","sequence":%d,"writer":"alice"},"cursor":%d,"driver":0`, seq, seq),
				fmt.Sprintf(`sense.perceived {"sequence":%d,"input_id":"i","disposition":"ended"}`, seq),
				fmt.Sprintf(`reflect.recorded {"sequence":%d}`, seq))
		}, "was taken before"},
		{"two turns at once", func(_ *testing.T, b *book) {
			for range 2 {
				seq := b.cause("agent.main.s.sense.input.alice", `{"text":"y"}`)
				b.commit("main.s",
					fmt.Sprintf(`"trigger":{"kind":"cause","sequence":%d,"writer":"alice"},"cursor":%d,"driver":%d`, seq, seq, seq),
					fmt.Sprintf(`sense.perceived {"sequence":%d,"disposition":"started"}`, seq))
			}
		}, "begins while that of"},
		{"a retry was stored twice", func(_ *testing.T, b *book) {
			for range 2 {
				b.cause("agent.main.s.sense.cancel.alice", `{}`)
				b.entries[len(b.entries)-1].Header = map[string][]string{"Nats-Msg-Id": {"m"}}
			}
		}, "message id m was stored"},
		{"an input waits for ever", func(_ *testing.T, b *book) {
			seq := b.cause("agent.main.s.sense.input.alice", `{"text":"y"}`)
			b.commit("main.s",
				fmt.Sprintf(`"trigger":{"kind":"cause","sequence":%d,"writer":"alice"},"cursor":%d,"driver":0`, seq, seq),
				fmt.Sprintf(`sense.perceived {"sequence":%d,"disposition":"queued"}`, seq))
		}, "waits although nothing runs"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := story()
			c.lie(t, b)
			faults := Audit(b.entries, b.effects, b.acked)
			if !strings.Contains(strings.Join(faults, "\n"), c.want) {
				t.Errorf("the audit does not say %q but:\n%s", c.want, strings.Join(faults, "\n"))
			}
		})
	}
}

func TestEffectsAreReadAsTheyWereWritten(t *testing.T) {
	file := t.TempDir() + "/effects"
	if got, err := ReadEffects(file); got != nil || err != nil {
		t.Fatalf("of no file: %v, %v", got, err)
	}
	want := Effect{Call: "c", Attempt: "a", Runner: "r", Tool: "t", Session: "s", At: clock}
	for range 2 {
		if err := want.append(file); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := ReadEffects(file); err != nil || len(got) != 2 || got[1] != want {
		t.Errorf("%+v, %v", got, err)
	}
}
