package ebpf

import (
	"errors"
	"fmt"
	"net"

	"fairlead/internal/kernel/bpf"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// XDP is the program that network drivers run (bpf/include/xdp.h).
const XDP = bpf.FairleadProgFlXdp

// The errors of AttachXDP that are not failures: the tc program processes the link's
// packets.
var (
	// ErrOccupied says that another XDP program is on the link.
	ErrOccupied = errors.New("another XDP program is attached")
	// ErrNoXDP says that the link's driver supports no XDP programs.
	ErrNoXDP = errors.New("the driver supports no XDP program")
)

// AttachXDP attaches the fast path to an interface's driver, for frames to that MAC
// address. Returns ErrOccupied or ErrNoXDP if the link cannot have it. The calling
// thread must be in the interface's network namespace.
func (p *Datapath) AttachXDP(ifindex int, mac net.HardwareAddr) error {
	prog, err := p.program(XDP)
	if err != nil {
		return err
	}
	var entry bpf.FairleadXdpLink
	copy(entry.Mac[:], mac)
	if err := p.maps[bpf.FairleadMapFlXdpLinks].Put(uint32(ifindex), entry); err != nil {
		return fmt.Errorf("set the fast path's MAC address of interface %d: %w", ifindex, err)
	}
	err = p.attached.attach(pinName(XDP, ifindex), prog, func() (link.Link, error) {
		return link.AttachXDP(link.XDPOptions{Program: prog, Interface: ifindex, Flags: link.XDPDriverMode})
	})
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EBUSY), errors.Is(err, unix.EEXIST):
		err = ErrOccupied
	case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EINVAL), errors.Is(err, unix.ERANGE),
		errors.Is(err, unix.ENOMEM), errors.Is(err, unix.ENOSPC):
		err = fmt.Errorf("%w: %w", ErrNoXDP, err)
	}
	return errors.Join(err, p.forgetXDPLink(ifindex))
}

// DetachXDP detaches the fast path from an interface.
func (p *Datapath) DetachXDP(ifindex int) error {
	return errors.Join(p.forgetXDPLink(ifindex), p.attached.detach(pinName(XDP, ifindex)))
}

func (p *Datapath) forgetXDPLink(ifindex int) error {
	err := p.maps[bpf.FairleadMapFlXdpLinks].Delete(uint32(ifindex))
	if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("remove interface %d from the fast path: %w", ifindex, err)
	}
	return nil
}

// XDPLinks returns the interfaces with the fast path, and the MAC address of each. It
// deletes the entries of interfaces that are gone.
func (p *Datapath) XDPLinks() (map[int]net.HardwareAddr, error) {
	found := map[int]net.HardwareAddr{}
	for name, l := range p.attached.byName {
		var ifindex int
		if _, err := fmt.Sscanf(name, XDP+"-%d", &ifindex); err != nil {
			continue
		}
		var entry bpf.FairleadXdpLink
		err := p.maps[bpf.FairleadMapFlXdpLinks].Lookup(uint32(ifindex), &entry)
		switch {
		case !living(l):
			if err := p.DetachXDP(ifindex); err != nil {
				return nil, err
			}
		case err == nil && p.attached.pinned(name):
			found[ifindex] = net.HardwareAddr(entry.Mac[:])
		case err != nil && !errors.Is(err, ebpf.ErrKeyNotExist):
			return nil, fmt.Errorf("read the fast path's address of interface %d: %w", ifindex, err)
		}
	}
	return found, nil
}

// XDPPackets returns the number of packets that the fast path has forwarded.
func (p *Datapath) XDPPackets() (sum uint64, err error) {
	var each []uint64
	if err := p.maps[bpf.FairleadMapFlXdpPackets].Lookup(uint32(0), &each); err != nil {
		return 0, fmt.Errorf("read the counter of the fast path: %w", err)
	}
	for _, n := range each {
		sum += n
	}
	return sum, nil
}
