package virtual

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"fairlead/internal/lab/topology/lan"

	"golang.org/x/sys/unix"
)

// askEvery is the time between two questions of the observer. silence is how long a
// host may not answer and still counts as answering: several questions.
const (
	askEvery = 5 * time.Millisecond
	silence  = 8 * askEvery
)

// Answer is an ARP packet in which a host claims the virtual address: the answer to a
// question, or an announcement.
type Answer struct {
	At  time.Time
	MAC string
}

// observer asks for an address and logs the answers.
type observer struct {
	socket   int
	question []byte
	to       unix.SockaddrLinklayer
	address  netip.Addr
	stop     chan struct{}
	running  sync.WaitGroup

	mu      sync.Mutex
	answers []Answer
	failed  error
}

// The fields of an ARP packet for IPv4 over Ethernet (RFC 826).
const (
	arpLength    = 28
	arpSenderMAC = 8
	arpSenderIP  = 14
	arpRequest   = 1
)

// observe starts an observer on a host that asks for an address.
func observe(h *lan.Host, own, address netip.Addr) (*observer, error) {
	o := &observer{address: address, stop: make(chan struct{})}
	if err := h.Do(func() error { return o.open(own) }); err != nil {
		return nil, fmt.Errorf("open a socket for ARP: %w", err)
	}
	o.running.Go(o.ask)
	o.running.Go(o.receive)
	return o, nil
}

// open opens the socket in the host's namespace.
func (o *observer) open(own netip.Addr) error {
	link, err := net.InterfaceByName(lan.Link)
	if err != nil {
		return err
	}
	protocol := binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, unix.ETH_P_ARP))
	o.socket, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, int(protocol))
	if err != nil {
		return err
	}
	o.to = unix.SockaddrLinklayer{Protocol: protocol, Ifindex: link.Index, Halen: 6,
		Addr: [8]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}}
	wait := unix.NsecToTimeval(int64(silence))
	err = errors.Join(unix.Bind(o.socket, &unix.SockaddrLinklayer{Protocol: protocol, Ifindex: link.Index}),
		unix.SetsockoptInt(o.socket, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1),
		unix.SetsockoptTimeval(o.socket, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait))
	if err != nil {
		return errors.Join(err, unix.Close(o.socket))
	}
	q := []byte{0, 1, 8, 0, 6, 4, 0, arpRequest}
	q = append(q, link.HardwareAddr...)
	q = append(q, own.AsSlice()...)
	q = append(q, make([]byte, 6)...)
	o.question = append(q, o.address.AsSlice()...)
	return nil
}

// ask sends questions until the observer is closed.
func (o *observer) ask() {
	every := time.NewTicker(askEvery)
	defer every.Stop()
	for {
		select {
		case <-o.stop:
			return
		case <-every.C:
		}
		if err := unix.Sendto(o.socket, o.question, 0, &o.to); err != nil && !errors.Is(err, unix.ENOBUFS) {
			o.fail(err)
			return
		}
	}
}

// receive logs answers until the observer is closed.
func (o *observer) receive() {
	packet, control := make([]byte, 128), make([]byte, 128)
	for {
		select {
		case <-o.stop:
			return
		default:
		}
		n, c, _, _, err := unix.Recvmsg(o.socket, packet, control, 0)
		switch {
		case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			o.fail(err)
			return
		}
		if mac, ok := claims(packet[:n], o.address); ok {
			o.mu.Lock()
			o.answers = append(o.answers, Answer{received(control[:c]), mac})
			o.mu.Unlock()
		}
	}
}

// claims returns the sender's MAC address of an ARP packet whose sender says that it has
// the address.
func claims(p []byte, address netip.Addr) (mac string, ok bool) {
	if len(p) < arpLength || [4]byte(p[arpSenderIP:]) != address.As4() {
		return "", false
	}
	return net.HardwareAddr(p[arpSenderMAC:arpSenderIP]).String(), true
}

// received returns when the kernel received a packet.
func received(control []byte) time.Time {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil || len(messages) == 0 || len(messages[0].Data) < 16 {
		return time.Now()
	}
	d := messages[0].Data // a struct timespec: seconds, nanoseconds
	return time.Unix(int64(binary.NativeEndian.Uint64(d)), int64(binary.NativeEndian.Uint64(d[8:])))
}

func (o *observer) fail(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.failed = fmt.Errorf("observe the virtual address: %w", err)
}

// log returns the answers so far, in the order of time.
func (o *observer) log() []Answer {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.answers)
}

func (o *observer) close() error {
	close(o.stop)
	o.running.Wait()
	return unix.Close(o.socket)
}
