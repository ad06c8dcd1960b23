package terminal

import (
	"fmt"
	"slices"
	"strings"
)

// change is a line of a diff: op is ' ', '-' or '+', or '…' for n equal lines that were
// left out.
type change struct {
	op   rune
	text string
	n    int
}

// maxCompared is how many pairs of lines are compared. Beyond it, the whole difference
// is shown as removed and added.
const maxCompared = 1 << 20

// diff compares two texts line by line. A last line without a line end differs from one
// with it.
func diff(before, after string) []change {
	a, b := slices.Collect(strings.Lines(before)), slices.Collect(strings.Lines(after))
	head := 0
	for head < min(len(a), len(b)) && a[head] == b[head] {
		head++
	}
	tail := 0
	for tail < min(len(a), len(b))-head && a[len(a)-1-tail] == b[len(b)-1-tail] {
		tail++
	}
	out := same(nil, a[:head])
	out = append(out, middle(a[head:len(a)-tail], b[head:len(b)-tail])...)
	return same(out, a[len(a)-tail:])
}

func same(to []change, lines []string) []change {
	for _, l := range lines {
		to = append(to, change{op: ' ', text: l})
	}
	return to
}

// middle returns the shortest diff of lines, by their longest common subsequence.
func middle(a, b []string) []change {
	if len(a)*len(b) > maxCompared {
		return replaced(a, b)
	}
	width := len(b) + 1
	common := make([]int32, (len(a)+1)*width) // of a[i:] and b[j:]
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if a[i] == b[j] {
				common[i*width+j] = common[(i+1)*width+j+1] + 1
			} else {
				common[i*width+j] = max(common[(i+1)*width+j], common[i*width+j+1])
			}
		}
	}
	var out []change
	i, j := 0, 0
	for i < len(a) && j < len(b) {
		switch {
		case a[i] == b[j]:
			out = same(out, a[i:i+1])
			i, j = i+1, j+1
		case common[(i+1)*width+j] >= common[i*width+j+1]:
			out = append(out, change{op: '-', text: a[i]})
			i++
		default:
			out = append(out, change{op: '+', text: b[j]})
			j++
		}
	}
	return append(out, replaced(a[i:], b[j:])...)
}

func replaced(a, b []string) []change {
	var out []change
	for _, l := range a {
		out = append(out, change{op: '-', text: l})
	}
	for _, l := range b {
		out = append(out, change{op: '+', text: l})
	}
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
