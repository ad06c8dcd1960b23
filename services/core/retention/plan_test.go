package retention

import (
	"testing"
	"time"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// turns returns the commits of turns of two commits each, one per hour, and the last of which ended at noon.
func turns(n int) (out []commit) {
	for i := range n {
		at := noon.Add(-time.Duration(n-1-i) * time.Hour)
		out = append(out, commit{seq: uint64(10*i + 2), at: at.Add(-time.Second), bytes: 100},
			commit{seq: uint64(10*i + 3), at: at, bytes: 100, idle: true, ended: 1})
	}
	return out
}

func chosen(l limits, all []commit) (last uint64, read int) {
	p := plan{limits: l}
	for _, c := range all {
		read++
		if !p.add(c) {
			break
		}
	}
	b, _ := p.choose()
	return b.last, read
}

func TestWhatLeavesTheLog(t *testing.T) {
	all := turns(10) // commits 2 and 3, 12 and 13, … 92 and 93
	open := append(turns(10), commit{seq: 102, at: noon, bytes: 100})
	l := func(k Keep, cut uint64) limits {
		return limits{Keep: k, before: noon.Add(-k.Age), settled: noon.Add(time.Hour), cut: cut, read: 1 << 60}
	}
	unread, unsettled := l(Keep{Turns: 2}, 0), l(Keep{Turns: 2}, 0)
	unread.read, unsettled.settled = 50, noon.Add(-5*time.Hour)
	for name, c := range map[string]struct {
		limits
		commits []commit
		want    uint64
	}{
		"no limit":                         {l(Keep{}, 0), all, 0},
		"three turns stay":                 {l(Keep{Turns: 3}, 0), all, 63},
		"as many turns as there are":       {l(Keep{Turns: 10}, 0), all, 0},
		"an open turn is not counted":      {l(Keep{Turns: 3}, 0), open, 63},
		"450 bytes stay, so 500":           {l(Keep{Bytes: 450}, 0), all, 63},
		"older than four and a half hours": {l(Keep{Age: 4*time.Hour + 30*time.Minute}, 0), all, 43},
		"everything is old: one stays":     {l(Keep{Age: time.Nanosecond}, 0), all, 83},
		"all of an open turn stays":        {l(Keep{Age: time.Nanosecond}, 0), open, 83},
		"the log is too full":              {l(Keep{}, 41), all, 33},
		"the log is much too full":         {l(Keep{}, 1<<60), all, 83},
		"the strictest limit counts":       {l(Keep{Turns: 5, Age: 3*time.Hour + time.Minute}, 31), all, 53},
		"what nobody has read stays":       {unread, all, 43},
		"what is too young stays":          {unsettled, all, 33},
		"one turn":                         {l(Keep{Age: time.Nanosecond}, 1<<60), turns(1), 0},
		"nothing":                          {l(Keep{Age: time.Nanosecond}, 1<<60), nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			if got, _ := chosen(c.limits, c.commits); got != c.want {
				t.Errorf("commits up to %d leave, want %d", got, c.want)
			}
		})
	}
}

func TestASessionIsLookedAtAgainWhenItsTurnsAreOldEnough(t *testing.T) {
	for name, c := range map[string]struct {
		Keep
		settled time.Time
		want    time.Time
	}{
		"all have settled":                {Keep{Turns: 9}, noon.Add(time.Second), time.Time{}},
		"the last two have not":           {Keep{Turns: 9}, noon.Add(-90 * time.Minute), noon.Add(-time.Hour + time.Minute)},
		"the first will be too old later": {Keep{Age: 11 * time.Hour}, noon.Add(time.Second), noon.Add(2*time.Hour - time.Second)},
	} {
		t.Run(name, func(t *testing.T) {
			p := plan{limits: limits{Keep: c.Keep, before: noon.Add(-c.Age), settled: c.settled, read: 1 << 60}}
			for _, x := range turns(10) {
				if !p.add(x) {
					break
				}
			}
			if got := p.again(time.Minute); !got.Equal(c.want) {
				t.Errorf("again at %v, want %v", got, c.want)
			}
		})
	}
}

func TestNoMoreIsReadThanTheChoiceNeeds(t *testing.T) {
	l := limits{Keep: Keep{Age: 8 * time.Hour}, before: noon.Add(-8 * time.Hour), settled: noon, read: 1 << 60}
	if last, read := chosen(l, turns(1000)); last != 9903 || read > 1984 {
		t.Errorf("commits up to %d leave, %d were read", last, read)
	}
	l.before = noon.Add(-5000 * time.Hour)
	if last, read := chosen(l, turns(1000)); last != 0 || read != 1 {
		t.Errorf("nothing is old; commits up to %d leave, %d were read", last, read)
	}
}

func TestTheCutFreesTenPercentMoreThanItMust(t *testing.T) {
	for _, c := range []struct{ fill, bytes, most, messages, first, last, tries, want uint64 }{
		{70, 700, 1000, 100, 1, 100, 5, 0},
		{70, 800, 1000, 100, 1, 100, 0, 26},    // 200 of 800 bytes
		{70, 800, 1000, 100, 101, 300, 0, 151}, // half of the sequences are gone already
		{70, 800, 0, 100, 1, 100, 0, 0},        // no limit
		{0, 999, 1000, 100, 1, 100, 0, 0},      // it does not matter
		{5, 100, 1000, 100, 1, 100, 0, 101},    // everything
		{70, 0, 1000, 0, 1, 0, 0, 0},
		{70, 800, 1000, 100, 1, 100, 1, 51}, // too little has left
		{70, 800, 1000, 100, 1, 100, 9, 101},
	} {
		got := cutAt(Keep{Fill: int(c.fill)}, c.bytes, c.most, c.messages, c.first, c.last, int(c.tries))
		if got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}
