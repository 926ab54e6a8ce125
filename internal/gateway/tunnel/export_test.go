package tunnel

// Shared returns how many connections the loops have.
func Shared() (n int) {
	for _, l := range loops() {
		l.mu.Lock()
		n += len(l.sides)
		l.mu.Unlock()
	}
	return n
}
