package dhcp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"fairlead/internal/kernel/neighbour"
	"fairlead/internal/kernel/netns"

	"github.com/insomniacslk/dhcp/dhcpv4/nclient4"
	"github.com/mdlayher/packet"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// answers is a BPF filter that accepts UDP datagrams to the client's port. It sees
// packets from the IPv4 header on.
var answers = []bpf.Instruction{
	bpf.LoadAbsolute{Off: 9, Size: 1}, // the protocol
	bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.IPPROTO_UDP, SkipTrue: 5},
	bpf.LoadAbsolute{Off: 6, Size: 2}, // the fragment's offset
	bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: 0x1fff, SkipTrue: 3},
	bpf.LoadMemShift{Off: 0},          // the header's length
	bpf.LoadIndirect{Off: 2, Size: 2}, // the destination port
	bpf.JumpIf{Cond: bpf.JumpEqual, Val: nclient4.ClientPort, SkipTrue: 1},
	bpf.RetConstant{Val: 0},
	bpf.RetConstant{Val: 1 << 16},
}

// inside runs fn in the sandbox's namespace, with the link. Sockets that fn opens
// stay in that namespace. Returns ErrGone if the sandbox has ended.
func (x *client) inside(fn func(*net.Interface) error) error {
	ns, err := netns.Open(x.Netns)
	if errors.Is(err, os.ErrNotExist) {
		return ErrGone
	}
	if err != nil {
		return err
	}
	defer ns.Close()
	if id, err := netns.Identify(ns.Path()); err != nil || id != x.sandbox {
		return errors.Join(err, ErrGone)
	}
	return ns.Do(func() error {
		link, err := net.InterfaceByName(x.Link)
		switch {
		case err != nil:
			return fmt.Errorf("find the link: %w", err)
		case len(link.HardwareAddr) != len(nclient4.BroadcastMac):
			return fmt.Errorf("the link has no Ethernet address, so it cannot ask a DHCP server: give an address")
		case link.Flags&net.FlagUp == 0:
			return fmt.Errorf("the link is down: set it up first")
		}
		return fn(link)
	})
}

// packets opens a packet socket, which needs no address on the link.
func (x *client) packets() (link *net.Interface, conn net.PacketConn, err error) {
	err = x.inside(func(found *net.Interface) (err error) {
		link = found
		conn, err = listenPackets(link, nil)
		return err
	})
	return link, conn, err
}

// towards opens a socket to the lease's server, or to any server, and returns the
// destination. If the leased address cannot be bound, because it was removed or the
// port is in use in the sandbox, packets to the server's address are broadcast on
// the link.
func (x *client) towards(g grant, anyServer bool) (link *net.Interface, conn net.PacketConn, to *net.UDPAddr,
	err error) {
	if anyServer || !g.Server.IsValid() {
		link, conn, err = x.packets()
		return link, conn, nclient4.DefaultServers, err
	}
	err = x.inside(func(found *net.Interface) error {
		link = found
		answers, err := listenPackets(link, nil)
		if err != nil {
			return err
		}
		out, err := listen(link, g.Prefixes[0].Addr())
		if errors.Is(err, unix.EADDRNOTAVAIL) || errors.Is(err, unix.EADDRINUSE) {
			out, err = listenPackets(link, g.ack.YourIPAddr)
		}
		if err != nil {
			return errors.Join(err, answers.Close())
		}
		conn = byAddress{answers, out}
		return nil
	})
	return link, conn, &net.UDPAddr{IP: g.ack.ServerIdentifier(), Port: nclient4.ServerPort}, err
}

// byAddress sends from the leased address, and receives all answers: a server
// broadcasts a refusal.
type byAddress struct {
	net.PacketConn
	out net.PacketConn
}

// WriteTo implements net.PacketConn.
func (b byAddress) WriteTo(p []byte, to net.Addr) (int, error) { return b.out.WriteTo(p, to) }

// Close implements net.PacketConn.
func (b byAddress) Close() error { return errors.Join(b.out.Close(), b.PacketConn.Close()) }

// listenPackets opens a packet socket for answers in the calling thread's
// namespace. It broadcasts on the link. If from is set, it sends from that address,
// and receives only packets to it.
func listenPackets(link *net.Interface, from net.IP) (net.PacketConn, error) {
	filter, err := bpf.Assemble(answers)
	if err != nil {
		return nil, err
	}
	raw, err := packet.Listen(link, packet.Datagram, unix.ETH_P_IP, &packet.Config{Filter: filter})
	if err != nil {
		return nil, fmt.Errorf("open a packet socket: %w (root is needed)", err)
	}
	return nclient4.NewBroadcastUDPConn(raw, &net.UDPAddr{IP: from, Port: nclient4.ClientPort}), nil
}

// listen binds the client's port of an address, on the link only.
func listen(link *net.Interface, from netip.Addr) (net.PacketConn, error) {
	onLink := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var bound error
		err := c.Control(func(fd uintptr) { bound = unix.BindToDevice(int(fd), link.Name) })
		return errors.Join(err, bound)
	}}
	return onLink.ListenPacket(context.Background(), "udp4", netip.AddrPortFrom(from, nclient4.ClientPort).String())
}

// probeTimeout is how long to wait for other hosts that have the address. RFC 5227
// waits for seconds, for slower networks.
const probeTimeout = 300 * time.Millisecond

// inUse asks the network whether another host answers for the address, or probes
// for it at the same time. If ctx ends first, it returns false.
func (x *client) inUse(ctx context.Context, address net.IP) (used bool, err error) {
	var asker *neighbour.Asker
	err = x.inside(func(link *net.Interface) (err error) {
		asker, err = neighbour.Open(link, true)
		return err
	})
	if err != nil {
		return false, fmt.Errorf("check whether the address is in use: %w", err)
	}
	defer asker.Close()
	leased, _ := netip.AddrFromSlice(address.To4())
	claims, err := asker.Ask(ctx, []netip.Addr{leased}, probeTimeout)
	if err != nil {
		return false, fmt.Errorf("check whether the address is in use: %w", err)
	}
	return ctx.Err() == nil && len(claims) > 0, nil
}
