// Package examples holds UIs of an agent in other languages, to read, run and copy:
// python/chat.py, which keeps running and reconnects after a restart of the bridge, and
// shell/ask.sh, which asks one thing with curl.
//
// Both use the HTTP API of package sse, with a token in SKANDHA_UI_TOKEN. The only Go code
// here is tests, which run each example against a live system.
package examples
