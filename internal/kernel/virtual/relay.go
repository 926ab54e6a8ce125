package virtual

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/net/bpf"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"
)

// A relay forwards packets for an address that this host has just closed to the host that has
// taken it. Until the neighbours have got the announcement of that host, they send to this one.
// Without a relay these packets would be lost, and a client would repeat its SYN only after a
// second.
//
// The relay reads the packets from a packet socket, which gets them before the fence drops
// them. It keeps them until another host announces the address, then sends them, and all that
// follow, to the hardware address of that host. It changes nothing but the Ethernet header, so
// this host answers nothing.

const (
	// relayFor is how long a relay works. A neighbour that has not got an announcement by then
	// may wait for the one of the next second.
	relayFor = 1500 * time.Millisecond
	// maxKept is how many bytes wait for an announcement.
	maxKept = 1 << 20
	// vnetHeader is the length of struct virtio_net_hdr, which says what of the checksum and
	// the segmentation is left to do.
	vnetHeader = 10
)

type relay struct {
	file *os.File
	on   Link
	addr netip.Addr
	kept [][]byte
	size int
	// to is the host that has the address now.
	to net.HardwareAddr
}

// Relay makes this host forward packets for an address, which it is about to close, to the next
// host that announces it. It ends by itself after a short time, or with Open.
func (h *Handle) Relay(a netip.Addr, on Link) error {
	h.stopRelay(a)
	r := &relay{on: on, addr: a}
	if err := h.ns.Do(r.open); err != nil {
		return fmt.Errorf("relay packets for %s: %w", a, err)
	}
	h.relays[a] = r
	go r.run()
	return nil
}

func (h *Handle) stopRelay(a netip.Addr) {
	if r := h.relays[a]; r != nil {
		r.file.Close()
		delete(h.relays, a)
	}
}

// open opens the packet socket in the calling thread's namespace.
func (r *relay) open() (err error) {
	if r.file, err = packetSocket("relay", r.on.Index, relayFilter(r.addr)); err != nil {
		return err
	}
	raw, err := r.file.SyscallConn()
	if err == nil {
		failed := raw.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1)
		})
		err = errors.Join(failed, err)
	}
	if err == nil {
		err = r.file.SetDeadline(time.Now().Add(relayFor))
	}
	if err != nil {
		return errors.Join(err, r.file.Close())
	}
	return nil
}

func attachFilter(fd int, filter []bpf.RawInstruction) error {
	var program []unix.SockFilter
	for _, f := range filter {
		program = append(program, unix.SockFilter{Code: f.Op, Jt: f.Jt, Jf: f.Jf, K: f.K})
	}
	return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
		&unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]})
}

// The offsets in frames.
const (
	typeAt       = 12
	arpSenderAt  = 14 + 14
	ip4TargetAt  = 14 + 16
	ip6NextAt    = 14 + 6
	ip6TargetAt  = 14 + 24
	icmp6TypeAt  = 14 + 40
	icmp6OwnerAt = 14 + 48
)

// relayFilter accepts packets for the address that were sent to this host, and announcements
// of the address.
func relayFilter(a netip.Addr) []bpf.Instruction {
	f := heardFilter(a)
	f = f[:len(f)-1]
	if a.Is4() {
		f = append(f, accept(unix.ETH_P_IP, ip4TargetAt, a)...)
	} else {
		f = append(f, accept(unix.ETH_P_IPV6, ip6TargetAt, a)...)
	}
	return append(f, bpf.RetConstant{Val: 0})
}

// accept accepts frames of a type that have the address at an offset, and passes the others.
func accept(kind uint32, at uint32, a netip.Addr) []bpf.Instruction {
	words := a.AsSlice()
	n := len(words) / 4
	f := []bpf.Instruction{
		bpf.LoadAbsolute{Off: typeAt, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: kind, SkipTrue: uint8(2*n + 1)},
	}
	for i := range n {
		word, left := binary.BigEndian.Uint32(words[4*i:]), uint8(2*(n-1-i)+1)
		f = append(f, bpf.LoadAbsolute{Off: at + uint32(4*i), Size: 4},
			bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: word, SkipTrue: left})
	}
	return append(f, bpf.RetConstant{Val: 1 << 18})
}

// run reads frames until the time is over or the file is closed.
func (r *relay) run() {
	defer r.file.Close()
	buf := make([]byte, vnetHeader+1<<17)
	for {
		n, err := r.file.Read(buf)
		if err != nil {
			return
		}
		if n < vnetHeader+14 {
			continue
		}
		frame := buf[vnetHeader:n]
		if by, ok := r.announced(frame); ok {
			r.announce(by)
			continue
		}
		if !bytes.Equal(frame[:6], r.on.MAC) {
			continue // for another host or for all
		}
		if r.to != nil {
			r.send(buf[:n])
		} else if r.size+n <= maxKept {
			r.kept, r.size = append(r.kept, bytes.Clone(buf[:n])), r.size+n
		}
	}
}

// announced returns the hardware address of another host that has the address.
func (r *relay) announced(frame []byte) (by net.HardwareAddr, ok bool) {
	switch binary.BigEndian.Uint16(frame[typeAt:]) {
	case unix.ETH_P_ARP:
		ok = len(frame) >= arpSenderAt+4 && bytes.Equal(frame[arpSenderAt:arpSenderAt+4], r.addr.AsSlice())
	case unix.ETH_P_IPV6:
		ok = len(frame) >= icmp6OwnerAt+16 && frame[ip6NextAt] == unix.IPPROTO_ICMPV6 &&
			frame[icmp6TypeAt] == byte(ipv6.ICMPTypeNeighborAdvertisement) &&
			bytes.Equal(frame[icmp6OwnerAt:icmp6OwnerAt+16], r.addr.AsSlice())
	}
	by = bytes.Clone(frame[6:12])
	return by, ok && !bytes.Equal(by, r.on.MAC)
}

// announce sends what has waited.
func (r *relay) announce(by net.HardwareAddr) {
	r.to = by
	for _, packet := range r.kept {
		r.send(packet)
	}
	r.kept = nil
}

// send sends a packet to the host that has the address.
func (r *relay) send(packet []byte) {
	copy(packet[vnetHeader:], r.to)
	copy(packet[vnetHeader+6:], r.on.MAC)
	_, _ = r.file.Write(packet) // the client sends it again if the link loses it
}
