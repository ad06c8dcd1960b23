package agent

// WithoutPidfds returns a Config for an agent that behaves as on a kernel without pidfds.
func WithoutPidfds() Config { return Config{noPidfd: true} }
