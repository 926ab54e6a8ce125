package nlutil

import "sync"

// Seen caches what was read, by keys, until Forget is called. It is safe for concurrent use.
type Seen[K comparable, V any] struct {
	mu  sync.Mutex
	all map[K]V
}

// Of returns the value of a key. It reads the value if it is not cached; a failed read is not cached.
func (s *Seen[K, V]) Of(key K, read func() (V, error)) (V, error) {
	s.mu.Lock()
	value, ok := s.all[key]
	s.mu.Unlock()
	if ok {
		return value, nil
	}
	value, err := read()
	if err != nil {
		return value, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[K]V{}
	}
	s.all[key] = value
	return value, nil
}

// Forget clears the cache.
func (s *Seen[K, V]) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = nil
}
