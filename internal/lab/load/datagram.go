package load

import (
	"fmt"
	"io"

	"golang.org/x/sys/unix"
)

// shot returns the number of datagrams per system call: a whole batch, but at a low
// rate no more than are due in a millisecond.
func (s Spec) shot() int {
	if s.Rate == 0 {
		return batchSize
	}
	return int(min(max(s.packetRate()/float64(s.Streams)/1000, 1), batchSize))
}

// packetRate returns the offered load of all streams in datagrams per second.
func (s Spec) packetRate() float64 {
	if s.Workload == UDPBulk {
		return s.Rate / 8 / float64(s.Size)
	}
	return s.Rate
}

// datagramSend sends batches until the run is quiet.
func (j *job) datagramSend(t *thread, s *stream, i int) error {
	shot := j.spec.shot()
	b := newBatch(shot, j.spec.Size)
	p := j.newPace(t, j.spec.packetRate()/float64(shot), i%j.spec.Streams, j.spec.Streams, 0)
	stamped := ^uint32(0)
	for !j.quiet.Load() {
		if p != nil {
			if _, ok := p.wait(j); !ok {
				return nil
			}
		}
		phase := j.phase.Load()
		if phase != stamped {
			j.stampAll(b, phase)
			stamped = phase
		}
		if err := j.shoot(t, s, b, phase); err != nil {
			return err
		}
	}
	return nil
}

// stampAll marks every datagram of the batch with the sender's phase.
func (j *job) stampAll(b *batch, phase uint32) {
	for _, buf := range b.bufs {
		stamp(buf, j.token, phase)
	}
}

// shoot sends the batch once. Messages that the kernel refuses because its buffer
// is full are not sent and not counted.
func (j *job) shoot(t *thread, s *stream, b *batch, phase uint32) error {
	n, errno := b.send(s.fd)
	switch errno {
	case 0:
	case unix.EINTR, unix.ENOBUFS:
		return nil
	default:
		return failed("send to", s.peer, errno)
	}
	t.sentBytes.Add(uint64(n * j.spec.Size))
	t.packetsSent.Add(uint64(n))
	if phase == phaseWindow {
		t.markedSent += uint64(n)
	}
	return nil
}

// datagramReceive counts what arrives until the run is over and the socket
// has been silent for a tick.
func (j *job) datagramReceive(t *thread, s *stream) error {
	s.over, s.patience = &j.done, 0
	b := newBatch(batchSize, max(j.spec.Size, helloSize))
	var w wait
	for {
		n, errno := b.receive(s.fd)
		switch {
		case errno == 0:
			j.count(t, s, b, n)
		case errno == unix.EAGAIN:
			if s.again(&w) == io.EOF {
				return nil
			}
		case errno == unix.EINTR, errno == unix.ECONNREFUSED && j.done.Load():
		default:
			return failed("receive from", s.peer, errno)
		}
	}
}

// count counts n received messages, and answers a hello that was repeated because
// the answer was lost.
func (j *job) count(t *thread, s *stream, b *batch, n int) {
	var bytes, packets, marked uint64
	for i := range n {
		data := b.message(i)
		if j.side == ServerSide && isHello(data) {
			_, _ = s.write(data) // if this is lost too, the client repeats its hello
			continue
		}
		phase, ok := readStamp(data, j.token)
		if !ok {
			continue
		}
		packets++
		bytes += uint64(len(data))
		if phase == phaseWindow {
			marked++
		}
	}
	t.receivedBytes.Add(bytes)
	t.packetsReceived.Add(packets)
	t.markedReceived += marked
}

// udpClient does transactions of one datagram in each direction, one after another.
// An answer counts if its first byte is the request's.
func (j *job) udpClient(t *thread, s *stream, i int) error {
	s.patience = lossAfter
	out, in := pattern(j.spec.Size), make([]byte, max(j.spec.Size, helloSize)+1)
	return j.transact(t, i, func() (int64, error) {
		out[0]++
		if err := s.writeFull(out); err != nil {
			return 0, err
		}
		t.sentBytes.Add(uint64(len(out)))
		t.packetsSent.Add(1)
		for {
			n, err := s.read(in)
			if err != nil {
				return 0, err
			}
			if n == len(out) && in[0] == out[0] {
				t.receivedBytes.Add(uint64(n))
				t.packetsReceived.Add(1)
				return j.clock.now(), nil
			}
		}
	}, true)
}

// udpServer sends every datagram back, the hello included.
func (j *job) udpServer(t *thread, s *stream) error {
	s.patience = 0
	buf := make([]byte, max(j.spec.Size, helloSize)+1)
	for {
		n, err := s.read(buf)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			if j.done.Load() {
				return nil // the client's socket is gone already
			}
			return fmt.Errorf("echo: %w", err)
		}
		if !isHello(buf[:n]) {
			t.receivedBytes.Add(uint64(n))
			t.packetsReceived.Add(1)
			t.sentBytes.Add(uint64(n))
			t.packetsSent.Add(1)
			t.transactions.Add(1)
		}
		if _, err := s.write(buf[:n]); err != nil && !j.done.Load() {
			return fmt.Errorf("echo: %w", err)
		}
	}
}
