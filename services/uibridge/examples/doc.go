// Package examples holds UIs of an agent in other languages, for people to read, to
// start and to copy: python/chat.py, which stays and comes back after a restart of the
// bridge, and shell/ask.sh, which asks one thing by curl.
//
// Both speak HTTP as package sse has it, with a token in SKANDHA_UI_TOKEN. There is no
// Go in it but tests, which start each beside a live system.
package examples
