// Package nearest finds the word that somebody may have meant.
package nearest

// Slips counts the letters that were left out, added, mistaken or swapped between two words.
func Slips(a, b string) int {
	rows := [3][]int{make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)}
	for j := range rows[1] {
		rows[1][j] = j
	}
	for i := 1; i <= len(a); i++ {
		before, above, row := rows[0], rows[1], rows[2]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			same := 1
			if a[i-1] == b[j-1] {
				same = 0
			}
			row[j] = min(above[j]+1, row[j-1]+1, above[j-1]+same)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		rows = [3][]int{above, row, before}
	}
	return rows[1][len(b)]
}

// Word is the known word that the fewest slips lead to, at most a third of its
// letters; "" if there is none.
func Word(typed string, known []string) string {
	var found string
	least := len(typed) + 1
	for _, w := range known {
		if d := Slips(typed, w); d <= len(w)/3 && d < least {
			found, least = w, d
		}
	}
	return found
}
