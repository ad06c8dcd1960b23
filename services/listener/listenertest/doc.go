// Package listenertest is the suite that every listener passes: against a real bus,
// with an emitter that can be held up, so that what happens between hearing and the
// log's acknowledgement can be looked at.
package listenertest
