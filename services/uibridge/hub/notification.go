package hub

import (
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"

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
	texts *simplelru.LRU[string, func() string]
	bytes int
}

// The bounds of the cache.
const (
	renderedTexts = 512
	renderedBytes = 4 << 20
)

func newRendered(m Markdown) *rendered {
	r := &rendered{render: m.Render}
	// It fails only if the size is not positive.
	r.texts, _ = simplelru.NewLRU(renderedTexts, func(text string, _ func() string) { r.bytes -= len(text) })
	return r
}

func (r *rendered) of(text string) string {
	r.mu.Lock()
	f, ok := r.texts.Get(text)
	if !ok {
		f = sync.OnceValue(func() string { return r.render(text) })
		r.texts.Add(text, f)
		r.bytes += len(text)
		for r.texts.Len() > 1 && r.bytes > renderedBytes {
			r.texts.RemoveOldest()
		}
	}
	r.mu.Unlock()
	return f()
}
