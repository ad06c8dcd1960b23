package markdown

// Sanitize is the policy alone.
func (r *Renderer) Sanitize(page string) string { return r.policy.Sanitize(page) }
