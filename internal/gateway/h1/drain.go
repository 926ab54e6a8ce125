package h1

// Drain lets each connection end with its next response, which has "Connection: close". It
// closes no connection: one that waits for a request may still send it. Call Shutdown
// to close those, and Serve's listener to accept no others.
func (s *Server) Drain() { s.last.Store(true) }
