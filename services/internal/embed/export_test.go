package embed

// Waiting returns how many texts wait to be sent.
func Waiting(c *Client) int {
	c.queue.mu.Lock()
	defer c.queue.mu.Unlock()
	return len(c.queue.waiting)
}
