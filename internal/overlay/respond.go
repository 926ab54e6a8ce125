package overlay

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// maxStreams limits the streams that are answered at the same time: each check
// opens one.
const maxStreams = 16

// Responder answers the checks of other hosts.
type Responder struct {
	tcp net.Listener
	udp *net.UDPConn
	all sync.WaitGroup
	mtu atomic.Int64
}

// SetMTU sets the MTU that the network has on this host. It may be called at any
// time, from any goroutine.
func (r *Responder) SetMTU(mtu int) { r.mtu.Store(int64(mtu)) }

// Respond starts to answer checks at the host's address in the network, until
// Close. The address must exist. The sockets are opened in the caller's namespace.
func Respond(local netip.Addr) (*Responder, error) {
	at := netip.AddrPortFrom(local, Port)
	tcp, err := net.Listen("tcp", at.String())
	if err != nil {
		return nil, fmt.Errorf("answer checks of the overlay: %w", err)
	}
	udp, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("answer checks of the overlay: %w", err), tcp.Close())
	}
	r := &Responder{tcp: tcp, udp: udp}
	r.all.Go(r.datagrams)
	r.all.Go(r.streams)
	return r, nil
}

// Close stops the Responder, and waits until it has answered the checks in progress.
func (r *Responder) Close() error {
	err := errors.Join(r.tcp.Close(), r.udp.Close())
	r.all.Wait()
	return err
}

// datagrams answers every message with one that is not larger.
func (r *Responder) datagrams() {
	buf := make([]byte, 1<<16)
	for {
		n, from, err := r.udp.ReadFrom(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		number, k, whole, ok := parse(buf[:n])
		if err != nil || !ok {
			continue
		}
		if whole && k == askMTU {
			if mtu := r.mtu.Load(); mtu > 0 {
				r.answer(withMTU(number, int(mtu)), from, false)
			}
			continue
		}
		size, as := minMessage, answer
		switch {
		case !whole:
			as = damaged
		case k == askWhole:
			size = n
		case k != askSmall && k != askBare:
			continue
		}
		r.answer(message(size, number, as), from, k == askBare)
	}
}

// answer sends a message. Errors are ignored: the prober treats them as loss.
func (r *Responder) answer(m []byte, to net.Addr, bare bool) {
	if bare {
		_ = sum(r.udp, false)
		defer func() { _ = sum(r.udp, true) }()
	}
	_, _ = r.udp.WriteTo(m, to)
}

func (r *Responder) streams() {
	room := make(chan struct{}, maxStreams)
	for {
		conn, err := r.tcp.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue
		}
		select {
		case room <- struct{}{}:
			r.all.Go(func() {
				defer func() { conn.Close(); <-room }()
				_ = conn.SetDeadline(time.Now().Add(streamTime))
				_ = mirror(conn) // the checking host sees that the stream ends
			})
		default:
			conn.Close()
		}
	}
}

// mirror reads the length of a stream and the stream, answers with its
// checksum, and sends as much back.
func mirror(conn net.Conn) error {
	var length uint32
	if err := binary.Read(conn, binary.BigEndian, &length); err != nil || length > maxStream {
		return err
	}
	sum := crc32.NewIEEE()
	if _, err := io.CopyN(sum, conn, int64(length)); err != nil {
		return err
	}
	if err := binary.Write(conn, binary.BigEndian, sum.Sum32()); err != nil {
		return err
	}
	_, err := io.Copy(conn, io.LimitReader(&pattern{}, int64(length)))
	return err
}

// pattern is an endless stream of test data.
type pattern struct{ at int }

// Read implements io.Reader.
func (p *pattern) Read(b []byte) (int, error) {
	fill(b, p.at)
	p.at += len(b)
	return len(b), nil
}
