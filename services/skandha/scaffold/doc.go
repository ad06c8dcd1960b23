// Package scaffold writes the skeletons of plugins: `skandha plugins new`.
//
// Each is a plugin that works, with a tool and, but for shell, a hook, a test of
// its own and a README of a few lines. What it shares with the examples of its
// language is taken from services/listener/examples, so that there is one of it.
package scaffold
