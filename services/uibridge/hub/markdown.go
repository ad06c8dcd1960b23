package hub

import "skandha.dev/services/uibridge/contract"

// Markdown renders the agent's text as sanitised HTML.
type Markdown interface {
	// Render renders a complete text.
	Render(text string) string
	// Stream renders a text while the model writes it.
	Stream() Stream
}

// Stream renders one growing text. It is not safe for concurrent use.
type Stream interface {
	// Append adds a piece and returns the changed blocks.
	Append(text string) []contract.Block
}

// Rendering makes a [Markdown] from a renderer whose Stream method returns a concrete type.
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
