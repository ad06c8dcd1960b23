package mqtt

// Subscribed reports whether the listener has subscribed at least once.
func (l *Listener) Subscribed() bool { return l.subscribed.Load() }
