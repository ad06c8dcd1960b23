// Package search provides the tool web:search: a [Searcher] asks a search engine that the
// configuration names, with its address and key. SearXNG is one's own server; Brave, Tavily
// and Exa are services that need a key.
//
// A search is one request, without retries and without redirects, because the key goes to the
// configured address only. An answer has at most 2 MiB and 20 seconds. The address may be
// local: an operator chose it, not a model.
//
// Every failure is an error that says what the engine answered and what to do: a key that is
// refused, a limit that is reached and when it ends, HTML instead of JSON, a SearXNG that does
// not offer JSON. Errors never contain the key.
package search
