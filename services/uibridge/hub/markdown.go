package hub

import "skandha.dev/services/uibridge/contract"

// Markdown renders what the agent says, as sanitised HTML.
type Markdown interface {
	// Render renders a whole text.
	Render(text string) string
	// Stream renders a text while it is being written.
	Stream() Stream
}

// Stream renders one text that grows. One goroutine uses it.
type Stream interface {
	// Append adds a piece and returns the blocks that have changed.
	Append(text string) []contract.Block
}

// Rendering makes a [Markdown] of a renderer whose Stream returns a type of its own.
func Rendering[S Stream](r interface {
	Render(text string) string
	Stream() S
},
) Markdown {
	return rendering[S]{r}
}

type rendering[S Stream] struct {
	r interface {
		Render(text string) string
		Stream() S
	}
}

func (r rendering[S]) Render(text string) string { return r.r.Render(text) }
func (r rendering[S]) Stream() Stream            { return r.r.Stream() }
