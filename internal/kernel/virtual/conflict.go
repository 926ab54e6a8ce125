package virtual

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// heardFilter accepts ARP packets and neighbour advertisements of hosts that have the address.
func heardFilter(a netip.Addr) []bpf.Instruction {
	f := []bpf.Instruction{
		bpf.LoadExtension{Num: bpf.ExtType},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.PACKET_OUTGOING, SkipFalse: 1},
		bpf.RetConstant{Val: 0},
	}
	if a.Is4() {
		f = append(f, accept(unix.ETH_P_ARP, arpSenderAt, a)...)
	} else {
		f = append(f, accept(unix.ETH_P_IPV6, icmp6OwnerAt, a)...)
	}
	return append(f, bpf.RetConstant{Val: 0})
}

// Listen calls heard whenever another host on the link claims to have the address, until Deaf or
// Close.
func (h *Handle) Listen(a netip.Addr, on Link, heard func(by net.HardwareAddr)) error {
	h.Deaf(a)
	var file *os.File
	err := h.ns.Do(func() (err error) {
		file, err = packetSocket("conflicts", on.Index, heardFilter(a))
		return err
	})
	if err != nil {
		return fmt.Errorf("watch for other hosts with %s: %w", a, err)
	}
	h.listening[a] = file
	r := &relay{on: on, addr: a}
	go func() {
		buf := make([]byte, 256)
		for {
			n, err := file.Read(buf)
			if errors.Is(err, os.ErrClosed) || err != nil && !errors.Is(err, unix.ENETDOWN) {
				return
			}
			if n >= icmp6TypeAt-12 {
				if by, ok := r.announced(buf[:n]); ok {
					heard(bytes.Clone(by))
				}
			}
		}
	}()
	return nil
}

// Deaf ends Listen.
func (h *Handle) Deaf(a netip.Addr) {
	if file := h.listening[a]; file != nil {
		file.Close()
		delete(h.listening, a)
	}
}

// packetSocket opens a packet socket on a link, in the calling thread's namespace, that receives
// what the filter accepts.
func packetSocket(name string, index int, filter []bpf.Instruction) (*os.File, error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(fd), name)
	raw, err := bpf.Assemble(filter)
	if err == nil {
		err = attachFilter(fd, raw)
	}
	if err == nil {
		const all = unix.ETH_P_ALL>>8 | unix.ETH_P_ALL&0xff<<8 // in network byte order
		err = unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: index, Protocol: all})
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}
