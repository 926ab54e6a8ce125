package proxy

import (
	"container/list"
	"time"

	"golang.org/x/sys/unix"
)

// flow forwards the datagrams of one UDP client to the target through a
// connected socket. Answers are sent to the client from the listening socket.
type flow struct {
	key   flowKey
	group *group
	slot  slotID
	// in sends to the target, out to the client.
	in, out  outlet
	answered bool
	used     time.Duration
	place    *list.Element
}

// flowKey identifies a flow: the listening socket, the client's address, and
// the local address that the client sent to.
type flowKey struct {
	socket *socket
	client sockaddr
	local  localAddr
}

// flowTable contains a worker's flows, in the order of their last use.
type flowTable struct {
	flows map[flowKey]*flow
	// oneDirection and answered are in the order of last use, the oldest first.
	oneDirection, answered *list.List
}

func (t *flowTable) init() {
	t.flows = map[flowKey]*flow{}
	t.oneDirection, t.answered = list.New(), list.New()
}

// get returns the flow of a key, and opens it if needed. It returns nil if that
// fails, or if the client is one of the proxy's own sockets; the datagram is then
// lost, as UDP permits.
func (t *flowTable) get(w *worker, key flowKey) *flow {
	if f := t.flows[key]; f != nil {
		return f
	}
	if w.isOurs(key.client) {
		return nil
	}
	if len(t.flows) >= w.limits.flows {
		t.evict(w)
	}
	f := &flow{key: key, group: key.socket.group}
	fd, e := f.group.dialUDP(key.socket.offset)
	if e != 0 {
		return nil
	}
	f.in.fd = fd
	f.out = outlet{fd: key.socket.fd, to: key.client}
	f.out.senderLen = len(key.local.appendTo(f.out.sender[:0]))
	f.slot = w.slots.add(f)
	if e := w.watch(fd, unix.EPOLLIN, f.slot, 0); e != 0 {
		w.slots.remove(f.slot)
		closeFD(fd)
		return nil
	}
	f.place = t.oneDirection.PushBack(f)
	t.flows[key] = f
	w.flowing(f.group, 1)
	return f
}

// dialUDP opens a socket that is connected to the target.
func (g *group) dialUDP(offset uint16) (int, unix.Errno) {
	fd, e := socketOf(g.target.family(), unix.SOCK_DGRAM)
	if e != 0 {
		return 0, e
	}
	_ = setOption(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, queueBytes)
	to := g.target.withPort(g.TargetPorts.First + offset)
	if e := connect(fd, &to); e != 0 {
		closeFD(fd)
		return 0, e
	}
	return fd, 0
}

// touch records that a flow was used. answer is true if the datagram came from
// the target.
func (t *flowTable) touch(f *flow, now time.Duration, answer bool) {
	f.used = now
	switch {
	case f.answered:
		t.answered.MoveToBack(f.place)
	case answer:
		t.oneDirection.Remove(f.place)
		f.answered = true
		f.place = t.answered.PushBack(f)
	default:
		t.oneDirection.MoveToBack(f.place)
	}
}

// evict drops the flow that has been idle longest. Flows without an answer go
// first, so that a flood from spoofed addresses does not evict working flows.
func (t *flowTable) evict(w *worker) {
	oldest := t.oneDirection.Front()
	if oldest == nil {
		oldest = t.answered.Front()
	}
	t.drop(w, oldest.Value.(*flow))
}

// drop ends a flow.
func (t *flowTable) drop(w *worker, f *flow) {
	if f.answered {
		t.answered.Remove(f.place)
	} else {
		t.oneDirection.Remove(f.place)
	}
	delete(t.flows, f.key)
	w.slots.remove(f.slot)
	closeFD(f.in.fd)
	w.flowing(f.group, -1)
}

// expire drops the flows that have been idle for too long.
func (t *flowTable) expire(w *worker) {
	if len(t.flows) == 0 {
		return
	}
	now := w.now()
	for f := front(t.oneDirection); f != nil && f.used+w.limits.oneDirection <= now; f = front(t.oneDirection) {
		t.drop(w, f)
	}
	for f := front(t.answered); f != nil && f.used+w.limits.answered <= now; f = front(t.answered) {
		t.drop(w, f)
	}
}

// timeout returns the time until the next flow expires, in milliseconds,
// rounded up. It returns -1 if there are no flows.
func (t *flowTable) timeout(w *worker) int {
	if len(t.flows) == 0 {
		return -1
	}
	const never = time.Duration(1<<63 - 1)
	next := never
	if f := front(t.oneDirection); f != nil {
		next = f.used + w.limits.oneDirection
	}
	if f := front(t.answered); f != nil {
		next = min(next, f.used+w.limits.answered)
	}
	return int(max(0, next-w.now())/time.Millisecond) + 1
}

func front(l *list.List) *flow {
	if e := l.Front(); e != nil {
		return e.Value.(*flow)
	}
	return nil
}
