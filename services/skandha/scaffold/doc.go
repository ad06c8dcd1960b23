// Package scaffold writes the skeletons of plugins for `skandha plugins new`.
//
// Each is a working plugin with a tool, a hook (except in shell), a test and a short
// README. The files that it shares with the examples of its language are taken from
// services/listener/examples, so that there is only one copy.
package scaffold
