package hub

import (
	"sync"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/follow"
	"skandha.dev/services/uibridge/contract"
)

// notification is a notification that is shared by many feeds.
type notification struct {
	at    place // zero: the notification is lossy
	whole bool  // onCommit
	bare  bool  // an event without its onCommit, because no feed wanted that
	note  contract.Notification
	// html returns the notification with rendered Markdown, rendered on first use. Nil: it
	// has none.
	html func() contract.Notification
}

func (t *notification) lossy() bool { return t.at.commit == 0 }

// size estimates the notification's size in a queue, in bytes.
func (t *notification) size() int { return len(t.note.Params) + 128 }

// is returns the notification for a feed with or without HTML.
func (t *notification) is(html bool) contract.Notification {
	if html && t.html != nil {
		return t.html()
	}
	return t.note
}

// newNotification makes the notification of an item; nil if it has none.
func newNotification(ref subject.Ref, i follow.Item, render func(string) string) (*notification, error) {
	method, params, err := paramsOf(ref, i)
	if err != nil || method == "" {
		return nil, err
	}
	t := &notification{at: placeOf(i), whole: i.Whole != nil}
	if t.note, err = encode(t.at, method, params); err != nil {
		return nil, err
	}
	if rendered := renderer(params, render); rendered != nil {
		plain := t.note
		t.html = sync.OnceValue(func() contract.Notification {
			n, err := encode(t.at, method, rendered())
			if err != nil {
				return plain
			}
			return n
		})
	}
	return t, nil
}

// renderer returns a function that adds HTML to the parameters, or nil if they have no
// Markdown.
func renderer(params any, render func(string) string) func() any {
	if render == nil {
		return nil
	}
	switch p := params.(type) {
	case contract.Message:
		if p.Format == event.Markdown && p.Content != "" {
			return func() any { p.HTML = render(p.Content); return p }
		}
	case contract.PlanCompleted:
		if p.Text != "" {
			return func() any { p.HTML = render(p.Text); return p }
		}
	}
	return nil
}

// rendered caches rendered texts, so that the same text is rendered only once: a plan's
// text and the message with the same text, and a history that many feeds read from the log.
type rendered struct {
	render func(string) string

	mu    sync.Mutex
	texts map[string]func() string
	order []string
	bytes int
}

// The bounds of the cache.
const (
	renderedTexts = 512
	renderedBytes = 4 << 20
)

func newRendered(m Markdown) *rendered {
	return &rendered{render: m.Render, texts: map[string]func() string{}}
}

func (r *rendered) of(text string) string {
	r.mu.Lock()
	f := r.texts[text]
	if f == nil {
		f = sync.OnceValue(func() string { return r.render(text) })
		r.texts[text] = f
		r.order = append(r.order, text)
		r.bytes += len(text)
		for len(r.order) > 1 && (len(r.order) > renderedTexts || r.bytes > renderedBytes) {
			r.bytes -= len(r.order[0])
			delete(r.texts, r.order[0])
			r.order = r.order[1:]
		}
	}
	r.mu.Unlock()
	return f()
}
