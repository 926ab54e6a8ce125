package serving

// Processes returns the process id of the serving process, and those of earlier ones that
// complete their connections.
func (c *Controller) Processes() (current int, leaving []int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for p := range c.leaving {
		leaving = append(leaving, p.pid)
	}
	return c.current.pid, leaving
}
