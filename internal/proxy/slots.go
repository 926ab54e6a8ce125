package proxy

// handler is what epoll events are for: a listening socket, a connection or
// a flow. side tells a connection's two descriptors apart.
type handler interface {
	ready(w *worker, events uint32, side direction)
}

// direction is a way through the proxy, and the side where it begins.
type direction int

const (
	inward  direction = 0 // from the client to the target
	outward direction = 1 // from the target to the client
)

// slotID names a handler in epoll's user data. The age tells apart an event
// that was fetched before its handler went and the slot was used anew.
type slotID struct{ index, age uint32 }

// slots maps slot ids to handlers.
type slots struct {
	table []slot
	free  []uint32
}

type slot struct {
	handler handler
	age     uint32
}

func (s *slots) add(h handler) slotID {
	if n := len(s.free); n > 0 {
		i := s.free[n-1]
		s.free = s.free[:n-1]
		s.table[i].handler = h
		return slotID{i, s.table[i].age}
	}
	s.table = append(s.table, slot{handler: h})
	return slotID{index: uint32(len(s.table) - 1)}
}

// ageMask leaves one of 32 bits for the side.
const ageMask = 1<<31 - 1

func (s *slots) remove(id slotID) {
	s.table[id.index] = slot{age: (id.age + 1) & ageMask}
	s.free = append(s.free, id.index)
}

func (s *slots) get(index, age uint32) handler {
	if t := s.table[index]; t.age == age {
		return t.handler
	}
	return nil
}

// bell is the handler of the eventfd: the loop reads its mail anyway.
type bell struct{}

func (bell) ready(*worker, uint32, direction) {}
