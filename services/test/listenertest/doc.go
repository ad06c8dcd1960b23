// Package listenertest is the suite that every listener passes, against a real bus and
// with an emitter that can be paused, to test what happens between receiving an input
// and its acknowledgement by the log.
package listenertest
