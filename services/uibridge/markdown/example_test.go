package markdown_test

import (
	"fmt"

	"skandha.dev/services/uibridge/markdown"
)

func Example() {
	r := markdown.New()
	fmt.Print(r.Render("Look: <script>alert(1)</script> [x](javascript:alert(1))"))

	s := r.Stream()
	for _, piece := range []string{"One", ".\n\nTw", "o.\n"} {
		for _, b := range s.Append(piece) {
			fmt.Printf("block %d: %s", b.Index, b.HTML)
		}
	}
	// Output:
	// <p>Look: &lt;script&gt;alert(1)&lt;/script&gt; x</p>
	// block 0: <p>One</p>
	// block 0: <p>One.</p>
	// <p>Tw</p>
	// block 0: <p>One.</p>
	// block 1: <p>Two.</p>
}
