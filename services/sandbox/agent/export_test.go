package agent

// WithoutPidfds is a Config for an agent that does as if its kernel had none.
func WithoutPidfds() Config { return Config{noPidfd: true} }
