package h1

// Connections returns the number of connections, and of those that MaxConns has refused.
func (s *Server) Connections() (open int, refused uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open(), s.refused.Load()
}
