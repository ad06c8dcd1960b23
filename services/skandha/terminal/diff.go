package terminal

import (
	"fmt"
	"strings"

	"github.com/aymanbagabas/go-udiff"
)

// change is a line of a diff: op is ' ', '-' or '+', or '…' for n equal lines that were
// left out.
type change struct {
	op   rune
	text string
	n    int
}

// diff compares two texts line by line. A last line without a line end differs from one
// with it.
func diff(before, after string) []change {
	var out []change
	add := func(op rune, text string) {
		for line := range strings.Lines(text) {
			out = append(out, change{op: op, text: line})
		}
	}
	at := 0
	for _, e := range udiff.Lines(before, after) {
		add(' ', before[at:e.Start])
		add('-', before[e.Start:e.End])
		add('+', e.New)
		at = e.End
	}
	add(' ', before[at:])
	return out
}

// aroundChange is how many equal lines are shown around a change.
const aroundChange = 2

// hunks leaves out equal lines, except a few around each change.
func hunks(all []change) []change {
	near := make([]bool, len(all))
	for i, c := range all {
		if c.op == ' ' {
			continue
		}
		for j := max(i-aroundChange, 0); j <= min(i+aroundChange, len(all)-1); j++ {
			near[j] = true
		}
	}
	var out []change
	for i := 0; i < len(all); {
		n := i
		for n < len(all) && !near[n] {
			n++
		}
		switch n - i {
		case 0:
			out = append(out, all[i])
			i++
			continue
		case 1:
			out = append(out, all[i])
		default:
			out = append(out, change{op: '…', n: n - i})
		}
		i = n
	}
	return out
}

// diffRows draws a diff. Each line has a sign, so that its meaning does not depend on
// colour.
func diffRows(before, after string, width int) []string {
	var out []string
	for _, c := range hunks(diff(before, after)) {
		s := map[rune]style{'-': red, '+': green}[c.op]
		if c.op == '…' {
			out = append(out, fit(dim.of(fmt.Sprintf("… %d unchanged lines", c.n)), width))
			continue
		}
		text, ended := strings.CutSuffix(c.text, "\n")
		for i, row := range hardwrap(exactLine(text), width-2) {
			sign := string(c.op)
			if i > 0 {
				sign = " "
			}
			out = append(out, s.of(sign+" "+row))
		}
		if !ended {
			out = append(out, fit(dim.of("  (no newline at end)"), width))
		}
	}
	return out
}
