package audit

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
)

// ReadHeads reads published heads, one JSON object a line. A last line that was not written to its end is ignored.
func ReadHeads(r io.Reader) (heads []Head, err error) {
	lines := bufio.NewReader(r)
	for n := 1; ; n++ {
		line, err := lines.ReadBytes('\n')
		if err == io.EOF {
			return heads, nil
		}
		if err != nil {
			return heads, err
		}
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		var h Head
		if err := json.Unmarshal(line, &h); err != nil || h.N == 0 {
			return heads, fmt.Errorf("line %d is not a head: want {\"n\": …, \"digest\": …}", n)
		}
		heads = append(heads, h)
	}
}
