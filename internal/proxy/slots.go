package proxy

// handler handles the epoll events of a listening socket, a connection or a
// flow. side says which of a connection's two descriptors has the event.
type handler interface {
	ready(w *worker, events uint32, side direction)
}

// direction is the direction in which bytes are forwarded. It also names the
// side that they are read from.
type direction int

const (
	inward  direction = 0 // from the client to the target
	outward direction = 1 // from the target to the client
)

// slotID identifies a handler in epoll's user data. A slot's age grows when its
// handler is removed, so that an event fetched before that does not reach the
// slot's next handler.
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

// bell handles the eventfd. It does nothing, because the loop reads its mailbox
// after each wait.
type bell struct{}

func (bell) ready(*worker, uint32, direction) {}
