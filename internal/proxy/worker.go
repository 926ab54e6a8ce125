package proxy

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// eventBatch limits the events served between two waits.
	eventBatch = 128
	// lingerMS is how many milliseconds a worker waits in a raw system call
	// before it waits through the Go runtime. Gaps in traffic are shorter.
	lingerMS = 2
	// retryAfter is the wait before the next accept if there was no free
	// descriptor.
	retryAfter = 100 * time.Millisecond
	// bufferSize is the size of the buffer for transfers without a pipe, in bytes.
	bufferSize = 64 << 10
)

// worker is one epoll loop. Everything in it belongs to its goroutine,
// except mail and counts.
type worker struct {
	id int
	// clients are the workers that accept clients, streams those that have bulk
	// streams only.
	clients, streams []*worker
	// turn limits the bytes that one direction of a connection moves per turn.
	turn   int
	epoll  int
	bell   int // eventfd that wakes the worker for its mailbox
	mail   mailbox
	counts counters
	limits limits

	slots   slots
	queue   []*conn       // connections that wait for a turn
	paused  []*socket     // listeners that wait for a free descriptor
	retryAt time.Duration // when they try again
	pipes   pipePool
	buffer  []byte
	ports   portPool
	flows   flowTable
	batch   *batch // nil until the first datagram
	start   time.Time
	// bound is shared by all workers: the sockets of the configuration.
	bound *atomic.Pointer[wanted]
}

// startWorkers starts n workers for clients and n for bulk streams.
func startWorkers(n int, lim limits) ([]*worker, error) {
	workers, err := newWorkers(n, lim)
	for _, w := range workers {
		go w.loop()
	}
	return workers, err
}

// newWorkers returns n workers for clients, then n for bulk streams. They do nothing
// yet.
func newWorkers(n int, lim limits) ([]*worker, error) {
	workers := make([]*worker, 2*n)
	bound := &atomic.Pointer[wanted]{}
	bound.Store(&wanted{})
	for i := range workers {
		w := &worker{id: i, clients: workers[:n], streams: workers[n:], turn: clientTurn, limits: lim,
			buffer: make([]byte, bufferSize), start: time.Now(), bound: bound}
		if i < n {
			w.ports = newPortPool(i)
		} else {
			w.turn = streamTurn
		}
		var err error
		if w.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
			return nil, fmt.Errorf("start worker: %w", err)
		}
		if w.bell, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
			return nil, fmt.Errorf("start worker: %w", err)
		}
		w.flows.init()
		// Edge-triggered: each write is one event, and no read is needed.
		if err := w.watch(w.bell, unix.EPOLLIN|unix.EPOLLET, w.slots.add(bell{}), 0); err != 0 {
			return nil, fmt.Errorf("start worker: %w", err)
		}
		workers[i] = w
	}
	return workers, nil
}

// loop serves events and never returns.
func (w *worker) loop() {
	events := make([]unix.EpollEvent, eventBatch)
	for {
		w.pass(events)
	}
}

// pass waits for events and serves them. Then it gives one turn to the connection
// that waits longest for one. So a small transfer waits for one turn at most,
// however many streams there are, and no connection has two turns in a pass.
func (w *worker) pass(events []unix.EpollEvent) {
	queued := len(w.queue)
	n := w.wait(events)
	for i := range events[:n] {
		ev := &events[i]
		if h := w.slots.get(uint32(ev.Fd), uint32(ev.Pad)>>1); h != nil {
			h.ready(w, ev.Events, direction(ev.Pad&1))
		}
	}
	w.resume(queued)
	w.read()
	w.flows.expire(w)
	if len(w.paused) > 0 && w.now() >= w.retryAt {
		w.retryAccept()
	}
}

// wait returns the number of events, 0 on a timeout. It first waits in a raw
// system call, and then through the Go runtime; see the package documentation.
func (w *worker) wait(events []unix.EpollEvent) int {
	limit := w.timeout()
	first := limit
	if first < 0 || first > lingerMS {
		first = lingerMS
	}
	n, _, e := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(w.epoll), uintptr(unsafe.Pointer(&events[0])),
		uintptr(len(events)), uintptr(first), 0, 8)
	if e != 0 {
		return 0
	}
	if n > 0 || first == limit {
		return int(n)
	}
	parked, err := unix.EpollWait(w.epoll, events, limit)
	if err != nil {
		return 0
	}
	return parked
}

// timeout returns the maximum wait in milliseconds; -1 is unlimited.
func (w *worker) timeout() int {
	if len(w.queue) > 0 {
		return 0
	}
	limit := w.flows.timeout(w)
	if retry := int(retryAfter / time.Millisecond); len(w.paused) > 0 && (limit < 0 || limit > retry) {
		limit = retry
	}
	return limit
}

// resume gives a turn to the first live connection of the queue. It looks at the
// first n only: the others were served in this pass.
func (w *worker) resume(n int) {
	for range n {
		c := w.queue[0]
		w.queue[0] = nil
		w.queue = w.queue[1:]
		c.queued = false
		if c.live {
			c.pump(w)
			return
		}
	}
}

// enqueue gives the connection a turn after those that wait already.
func (w *worker) enqueue(c *conn) {
	if !c.queued {
		c.queued = true
		w.queue = append(w.queue, c)
	}
}

// watch registers a descriptor for the handler in a slot.
func (w *worker) watch(fd int, events uint32, slot slotID, side direction) unix.Errno {
	return w.control(unix.EPOLL_CTL_ADD, fd, events, slot, side)
}

func (w *worker) control(op, fd int, events uint32, slot slotID, side direction) unix.Errno {
	ev := unix.EpollEvent{Events: events, Fd: int32(slot.index), Pad: int32(slot.age<<1 | uint32(side))}
	_, _, e := unix.RawSyscall6(unix.SYS_EPOLL_CTL, uintptr(w.epoll), uintptr(op), uintptr(fd),
		uintptr(unsafe.Pointer(&ev)), 0, 0)
	return e
}

// now returns the time since the worker's start.
func (w *worker) now() time.Duration { return time.Since(w.start) }

// mailbox is a queue (first in, first out) from other goroutines to a worker.
type mailbox struct {
	mu      sync.Mutex
	letters []letter
}

// letter is a task, an open connection from another worker, or an accepted one.
type letter struct {
	task func()
	conn *conn
	from arrival
}

// post puts a letter into the mailbox. It wakes the worker if the mailbox was
// empty.
func (w *worker) post(l letter) {
	w.mail.mu.Lock()
	w.mail.letters = append(w.mail.letters, l)
	first := len(w.mail.letters) == 1
	w.mail.mu.Unlock()
	if first {
		one := uint64(1)
		_, _, _ = unix.RawSyscall(unix.SYS_WRITE, uintptr(w.bell), uintptr(unsafe.Pointer(&one)), 8)
	}
}

// read empties the mailbox.
func (w *worker) read() {
	w.mail.mu.Lock()
	letters := w.mail.letters
	w.mail.letters = nil
	w.mail.mu.Unlock()
	for _, l := range letters {
		switch {
		case l.task != nil:
			l.task()
		case l.conn != nil:
			w.adopt(l.conn)
		default:
			w.begin(l.from)
		}
	}
}

// everywhere runs a task on each worker and waits until all are done.
func everywhere(workers []*worker, task func(*worker)) {
	var done sync.WaitGroup
	for _, w := range workers {
		done.Add(1)
		w.post(letter{task: func() {
			defer done.Done()
			task(w)
		}})
	}
	done.Wait()
}
