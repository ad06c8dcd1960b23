package anthropic

// cacheControl marks the end of a beginning that the API is to cache.
type cacheControl struct {
	Type string `json:"type"`
}

var ephemeral = &cacheControl{"ephemeral"}

// leastCached is the size of the shortest beginning that is marked, in bytes: about the 1024
// tokens that the API caches at least.
const leastCached = 4 << 10

// mark marks at most four blocks, where another request is likely to begin with the same:
// the end of the tools and of the system prompt, and the last two messages of the user, of
// which the first was the end of the request before. A question without tools that begins a
// conversation is not marked: writing to the cache has its price.
func (b *body) mark() {
	size := 0
	if n := len(b.Tools); n > 0 {
		if size += len(encode(b.Tools)); size >= leastCached {
			b.Tools[n-1].Cache = ephemeral
		}
	}
	if n := len(b.System); n > 0 {
		if size += len(encode(b.System)); size >= leastCached {
			b.System[n-1].Cache = ephemeral
		}
	}
	if len(b.Tools) == 0 && len(b.Messages) < 2 {
		return
	}
	for i := 0; i < len(b.Messages) && size < leastCached; i++ {
		size += len(encode(b.Messages[i]))
	}
	last := len(b.Messages) - 1 // of the user, as every second one
	for i := last; i >= 0 && i >= last-2 && size >= leastCached; i -= 2 {
		content := b.Messages[i].Content
		content[len(content)-1].(*block).Cache = ephemeral
	}
}
