package tunnel

import (
	"bytes"
	"context"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"fairlead/internal/gateway/goroutine"
	"fairlead/internal/gateway/nonblock"
)

const (
	// batch is how many connections a loop serves after one question to the kernel, and turns how many
	// batches before other goroutines get the processor.
	batch = 128
	turns = 16
)

// loop moves the messages of many tunnels on one goroutine. It has its own descriptors of the sockets:
// the runtime's poller, which would wake for each message, does not know them. It only moves what it
// can move at once. A tunnel leaves when a connection does not accept all bytes, or when large amounts
// arrive.
type loop struct {
	poll *nonblock.Poll

	// mu protects the fields below, and the pairs.
	mu     sync.Mutex
	sides  map[int32]*side
	buffer [bufferSize]byte
}

// pair is a tunnel in a loop.
type pair struct {
	loop  *loop
	sides [2]side
	// left is closed when the loop has the tunnel no longer. Then over says whether its connections
	// are closed.
	left chan struct{}
	over bool
}

// side is one connection of a pair.
type side struct {
	pair  *pair
	other *side
	fd    int32
	// full counts the full buffers in a row. ended: nothing more comes.
	full  int
	ended bool
	// rest is what was received, and what the other side has not accepted yet.
	rest []byte
}

// loops returns the loops of the process. Half of the processors can be busy with tunnels: a message
// costs less the more there are for one loop.
var loops = sync.OnceValue(func() (all []*loop) {
	for range max(1, runtime.GOMAXPROCS(0)/2) {
		if l, err := newLoop(); err == nil {
			all = append(all, l)
		}
	}
	return all
})

// turn chooses the loop of the next tunnel.
var turn atomic.Uint32

// JoinMessages is Join without a delay for a tunnel that carries messages, as those of WebSocket. It also
// closes the connections when ctx ends.
func JoinMessages(ctx context.Context, a, b net.Conn) {
	there, back := newDirection(b, a, -1), newDirection(a, b, -1)
	if p := enter(there.source, there.sink); p != nil {
		if there, back = p.wait(ctx); there == nil {
			return
		}
	}
	stop := goroutine.OnDone(ctx, "end a tunnel", func() {
		_ = there.from.Close()
		_ = there.to.Close()
	})
	defer stop()
	join(there, back)
}

func newLoop() (*loop, error) {
	poll, err := nonblock.NewPoll("tunnels")
	if err != nil {
		return nil, err
	}
	l := &loop{poll: poll, sides: map[int32]*side{}}
	goroutine.Go("serve tunnels", l.run)
	return l, nil
}

// run serves the tunnels. It does not return.
func (l *loop) run() {
	var events [batch]unix.EpollEvent
	serve := func(poll uintptr) bool {
		for range turns {
			n := nonblock.Events(poll, events[:])
			if n == 0 {
				return false
			}
			l.serve(events[:n])
		}
		return true
	}
	for l.poll.Wait(serve) == nil {
		runtime.Gosched()
	}
}

// enter gives a tunnel to a loop. It returns nil if the tunnel has to do without: the connections are
// unchanged then. Otherwise the loop has their sockets, and a and b are closed.
func enter(a, b *net.TCPConn) *pair {
	all := loops()
	if a == nil || b == nil || len(all) == 0 {
		return nil
	}
	l := all[int(turn.Add(1))%len(all)]
	p := &pair{loop: l, left: make(chan struct{})}
	for i, c := range []*net.TCPConn{a, b} {
		p.sides[i] = side{pair: p, other: &p.sides[1-i], fd: duplicate(c)}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.add(&p.sides[0]) || !l.add(&p.sides[1]) {
		l.remove(p)
		p.close()
		return nil
	}
	_ = a.Close()
	_ = b.Close()
	return p
}

// duplicate returns another descriptor of the socket, -1 if there is none.
func duplicate(c *net.TCPConn) int32 {
	fd := -1
	if raw, err := c.SyscallConn(); err == nil {
		_ = raw.Control(func(s uintptr) { fd, _ = unix.FcntlInt(s, unix.F_DUPFD_CLOEXEC, 0) })
	}
	return int32(fd)
}

// add begins to watch a connection. The caller holds mu.
func (l *loop) add(s *side) bool {
	if s.fd < 0 || l.poll.Add(s.fd, unix.EPOLLET&(1<<32-1)) != nil {
		return false
	}
	l.sides[s.fd] = s
	return true
}

// remove forgets a tunnel. The caller holds mu.
func (l *loop) remove(p *pair) {
	for i := range p.sides {
		if s := &p.sides[i]; l.sides[s.fd] == s {
			delete(l.sides, s.fd)
			l.poll.Remove(s.fd)
		}
	}
}

func (l *loop) serve(events []unix.EpollEvent) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range events {
		// An event can be of a tunnel that has left meanwhile.
		if s := l.sides[events[i].Fd]; s != nil {
			l.serveSide(s, events[i].Events)
		}
	}
}

// serveSide passes on what a connection has received. A mistake ends its tunnel only.
func (l *loop) serveSide(s *side, events uint32) {
	defer goroutine.Recover("move the messages of a tunnel", s.pair.reset)
	s.serve(events, l.buffer[:])
}

// serve passes on what a connection has received. After a read that does not fill the buffer, the kernel
// reports what comes later; only the end may have been reported already.
func (s *side) serve(events uint32, b []byte) {
	const ends = unix.EPOLLRDHUP | unix.EPOLLHUP | unix.EPOLLERR
	if s.ended && events&unix.EPOLLERR == 0 {
		return
	}
	for {
		n, errno := nonblock.Receive(uintptr(s.fd), b, 0)
		switch {
		case errno == unix.EAGAIN:
			return
		case errno != 0:
			s.pair.reset()
			return
		case n == 0:
			s.end()
			return
		}
		if !s.pass(b[:n]) || n < len(b) && events&ends == 0 {
			return
		}
	}
}

// pass sends bytes to the other side. It returns false if the tunnel has left the loop.
func (s *side) pass(b []byte) bool {
	sent, errno := nonblock.Send(uintptr(s.other.fd), b)
	if errno == unix.EAGAIN {
		sent = 0
	} else if errno != 0 {
		s.pair.reset()
		return false
	}
	if s.full++; len(b) < bufferSize {
		s.full = 0
	}
	if sent == len(b) && s.full < bulkAfter {
		return true
	}
	s.rest = bytes.Clone(b[sent:])
	s.pair.leave()
	return false
}

// end passes on that nothing more comes.
func (s *side) end() {
	s.ended = true
	switch {
	case unix.Shutdown(int(s.other.fd), unix.SHUT_WR) != nil:
		s.pair.reset()
	case s.other.ended:
		s.pair.finish()
	}
}

// leave takes the tunnel out of the loop. Its connections stay open.
func (p *pair) leave() {
	p.loop.remove(p)
	close(p.left)
}

// finish ends the tunnel.
func (p *pair) finish() {
	p.over = true
	p.leave()
	p.close()
}

// reset ends the tunnel so that both peers notice a failure.
func (p *pair) reset() {
	for _, s := range p.sides {
		_ = unix.SetsockoptLinger(int(s.fd), unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	}
	p.finish()
}

// close closes the descriptors that the pair has.
func (p *pair) close() {
	for _, s := range p.sides {
		if s.fd >= 0 {
			_ = unix.Close(int(s.fd))
		}
	}
}

// wait waits until the tunnel has left the loop, and ends it when ctx ends. It returns the two directions if
// they continue.
func (p *pair) wait(ctx context.Context) (there, back *direction) {
	select {
	case <-p.left:
	case <-ctx.Done():
		p.stop()
	}
	if p.over {
		return nil, nil
	}
	a, b := p.sides[0].conn(), p.sides[1].conn()
	if a == nil || b == nil {
		for _, c := range []net.Conn{a, b} {
			if c != nil {
				Reset(c)
			}
		}
		return nil, nil
	}
	there, back = newDirection(b, a, -1), newDirection(a, b, -1)
	there.rest, back.rest = p.sides[0].rest, p.sides[1].rest
	return there, back
}

// stop ends the tunnel unless it has left the loop.
func (p *pair) stop() {
	p.loop.mu.Lock()
	defer p.loop.mu.Unlock()
	select {
	case <-p.left:
	default:
		p.finish()
	}
}

// conn returns the connection with the descriptor, which becomes the runtime's; nil if that fails.
func (s *side) conn() net.Conn {
	f := os.NewFile(uintptr(s.fd), "tunnel")
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return nil
	}
	return c
}
