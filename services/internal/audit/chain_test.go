package audit_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"skandha.dev/services/internal/audit"
)

// chain returns the lines of n entries, the first of which has the number from.
func chain(t *testing.T, from, n uint64, what string) (lines [][]byte) {
	t.Helper()
	prev := ""
	if from > 1 {
		prev = audit.Digest([]byte("what was before"))
	}
	for i := range n {
		e := audit.Entry{
			N: from + i, Time: time.Unix(int64(i), 0).UTC(), By: audit.Who{Kind: audit.Person, Name: "ann"}, Verb: audit.Approved,
			What: fmt.Sprint(what, i), Core: "c1", Prev: prev,
		}
		line, err := e.Seal()
		if err != nil {
			t.Fatal(err)
		}
		prev = e.Digest
		lines = append(lines, line)
	}
	return lines
}

// reseal returns the line with another content and a digest that fits.
func reseal(t *testing.T, line []byte, change func(*audit.Entry)) []byte {
	t.Helper()
	e, err := audit.Parse(line)
	if err != nil {
		t.Fatal(err)
	}
	change(&e)
	line, err = e.Seal()
	if err != nil {
		t.Fatal(err)
	}
	return line
}

// read returns the first break of lines, and the chain.
func read(lines [][]byte) (c audit.Chain, first *audit.Break) {
	for _, line := range lines {
		if _, err := c.Add(line); err != nil && first == nil {
			errors.As(err, &first)
		}
	}
	return c, first
}

func TestEveryChangeOfAChainIsNamed(t *testing.T) {
	lines := chain(t, 1, 8, "call ")
	whole, none := read(lines)
	if none != nil || whole.N != 8 || whole.First != 1 {
		t.Fatalf("the chain itself: %+v, %v", whole, none)
	}
	for name, c := range map[string]struct {
		change func([][]byte) [][]byte
		n      uint64 // of the first entry that is named
		says   string
	}{
		"a word changed": {func(l [][]byte) [][]byte {
			l[3] = []byte(strings.Replace(string(l[3]), "ann", "bob", 1))
			return l
		}, 4, "entry 4 was changed"},
		"a digest changed": {func(l [][]byte) [][]byte {
			l[3] = []byte(strings.Replace(string(l[3]), `"digest":"`, `"digest":"0`, 1))
			return l
		}, 4, "entry 4 was changed"},
		"changed and sealed again": {func(l [][]byte) [][]byte {
			l[3] = reseal(t, l[3], func(e *audit.Entry) { e.By.Name = "bob" })
			return l
		}, 4, "entry 4 was replaced"},
		"the first one sealed again": {func(l [][]byte) [][]byte {
			l[0] = reseal(t, l[0], func(e *audit.Entry) { e.By.Name = "bob" })
			return l
		}, 1, "entry 1 was replaced"},
		"one removed":      {func(l [][]byte) [][]byte { return slices.Delete(l, 3, 4) }, 4, "entries 4 to 4 were removed"},
		"several removed":  {func(l [][]byte) [][]byte { return slices.Delete(l, 2, 5) }, 3, "entries 3 to 5 were removed"},
		"two swapped":      {func(l [][]byte) [][]byte { l[3], l[4] = l[4], l[3]; return l }, 4, "entries 4 to 4 were removed"},
		"one put in twice": {func(l [][]byte) [][]byte { return slices.Insert(l, 4, l[3]) }, 5, "where entry 5 belongs"},
		"one put in": {func(l [][]byte) [][]byte {
			return slices.Insert(l, 4, reseal(t, l[3], func(e *audit.Entry) { e.N, e.Prev = 5, e.Digest }))
		}, 6, "where entry 6 belongs"},
		"not JSON":       {func(l [][]byte) [][]byte { l[5] = []byte("…"); return l }, 6, "entry 6 cannot be read"},
		"without digest": {func(l [][]byte) [][]byte { l[5] = []byte(`{"n":6}`); return l }, 6, "entry 6 was changed"},
		"a field more": {func(l [][]byte) [][]byte {
			l[5] = append([]byte(`{"x":1,`), l[5][1:]...)
			return l
		}, 6, "entry 6 was changed"},
	} {
		t.Run(name, func(t *testing.T) {
			_, b := read(c.change(slices.Clone(lines)))
			if b == nil || b.N != c.n || !strings.Contains(b.Reason, c.says) {
				t.Errorf("%+v, want entry %d: %s", b, c.n, c.says)
			}
		})
	}
}

// A chain whose end was cut, or that was rewritten, is intact in itself: only a head that is known shows it.
func TestAHeadShowsWhatTheChainDoesNot(t *testing.T) {
	lines := chain(t, 1, 8, "call ")
	whole, _ := read(lines)
	head := whole.Head()

	cut, b := read(lines[:5])
	if b != nil {
		t.Fatal(b)
	}
	if b := cut.Short(head); b == nil || b.N != 6 || !strings.Contains(b.Reason, "entries 6 to 8 were removed") {
		t.Errorf("cut: %+v", b)
	}
	if b := (audit.Chain{}).Short(head); b == nil || b.N != 1 || !strings.Contains(b.Reason, "all entries were removed") {
		t.Errorf("empty: %+v", b)
	}
	rewritten := chain(t, 1, 10, "another call ")
	if _, b := read(rewritten); b != nil {
		t.Fatal(b)
	}
	e, err := audit.Parse(rewritten[7])
	if err != nil {
		t.Fatal(err)
	}
	if b := e.Against(head); b == nil || b.N != 8 || !strings.Contains(b.Reason, "was rewritten") {
		t.Errorf("rewritten: %+v", b)
	}
	same, _ := audit.Parse(lines[7])
	if b := same.Against(head); b != nil || whole.Short(head) != nil {
		t.Errorf("what is as it was: %v", b)
	}
}

// The oldest entries are dropped when there is no room for them.
func TestAChainMayBeginLater(t *testing.T) {
	c, b := read(chain(t, 5, 3, "call "))
	if b != nil || c.First != 5 || c.N != 7 {
		t.Errorf("%+v, %v", c, b)
	}
	first := reseal(t, chain(t, 1, 1, "call ")[0], func(e *audit.Entry) { e.Prev = "x" })
	if _, b := read([][]byte{first}); b == nil || !strings.Contains(b.Reason, "it names an entry before it") {
		t.Errorf("entry 1 with an entry before it: %v", b)
	}
}

// sha256sum of the line without its last field is the digest, so that no program of ours is needed.
func TestADigestNeedsNoProgramOfOurs(t *testing.T) {
	line := string(chain(t, 1, 1, "<&>\u2028 ")[0])
	body, digest, ok := strings.Cut(line, `,"digest":"`)
	if !ok || audit.Digest([]byte(body+"}")) != strings.TrimSuffix(digest, `"}`) {
		t.Errorf("%s", line)
	}
}

func TestHeadsAreLines(t *testing.T) {
	for text, want := range map[string]string{
		"":                            "0",
		`{"n":3,"digest":"a"}` + "\n": "1",
		`{"n":3,"digest":"a"}` + "\n\n" + `{"n":4,"digest":"b"}` + "\n" + `{"n":5,"dig`: "2",
		"{}\n": "line 1 is not a head", `{"n":3}` + "\nx\n": "line 2 is not a head",
	} {
		heads, err := audit.ReadHeads(strings.NewReader(text))
		if got := fmt.Sprint(len(heads), err); !strings.Contains(got, want) {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}
