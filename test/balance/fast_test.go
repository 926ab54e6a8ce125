package balance_test

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"fairlead/internal/kernel/ebpf/datapath"
	"fairlead/internal/lab/topology"
	"fairlead/internal/model"
	"fairlead/test/place"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// TestFastPath repeats the tests of forwarding modes that leave packets unchanged, with the fast
// path at the drivers of the host's uplinks. The results must be the same, and the packets must
// have used the fast path.
func TestFastPath(t *testing.T) {
	l := fastLAN(t, datapath.XDPAlways)
	for name, try := range map[string]func(*lan, model.Proto, bool){"direct": (*lan).direct, "tunnel": (*lan).tunnels,
		"tunnel in UDP": (*lan).tunnelsInUDP} {
		for _, proto := range []model.Proto{model.TCP, model.UDP} {
			for _, v4 := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s/%s/ipv%d", name, proto, map[bool]int{true: 4, false: 6}[v4]), func(t *testing.T) {
					in := l.of(t)
					_, before, err := l.FastPath()
					if err != nil {
						t.Fatal(err)
					}
					try(in, proto, v4)
					links, after, err := l.FastPath()
					if err != nil || after == before {
						t.Errorf("no packet has used the fast path: %v", err)
					}
					if want := []model.FastLink{{Link: "lan0"}, {Link: topology.Wire}}; !slices.Equal(sorted(links),
						want) {
						t.Errorf("the fast path is on %v, want %v", links, want)
					}
				})
			}
		}
	}
	l.set(l.service(model.TCP, true, "far1", "far2"))
	if links, _, err := l.FastPath(); err != nil || len(links) != 0 {
		t.Errorf("without a service that uses it, the fast path is on %v: %v", links, err)
	}
	l.only(l.spread(l.DoClient, model.TCP, true, 30), "far1", "far2")
	l.occupied()
	l.over()
}

// occupied checks that the tc program forwards on a link that already has another program's XDP
// program.
func (l *lan) occupied() {
	ours := l.passes(l.DoServer, "lan0")
	defer ours.Close()
	l.direct(model.TCP, true)
	links, _, err := l.FastPath()
	if links = sorted(links); err != nil || len(links) != 2 ||
		!strings.Contains(links[0].Refused, "another XDP program is attached") || links[1].Refused != "" {
		l.Errorf("the fast path is on %v: %v", links, err)
	}
	if info, err := ours.Info(); err != nil || info.XDP().Ifindex == 0 {
		l.Errorf("the other program is gone: %+v, %v", info, err)
	}
}

func sorted(links []model.FastLink) []model.FastLink {
	slices.SortFunc(links, func(a, b model.FastLink) int { return strings.Compare(a.Link, b.Link) })
	return links
}

// fastLAN returns a LAN whose host has the fast path on some uplinks. The peers of its links must
// accept XDP frames, and senders must compute checksums, as with a network card between them.
func fastLAN(t testing.TB, choice datapath.XDP) *lan {
	t.Helper()
	l := newLAN(t, model.PlaneEBPF, topology.Options{XDP: choice})
	l.passes(l.DoClient, topology.Wire)
	l.passes(l.switched.Do, "port-host")
	for _, name := range []string{topology.Wire, "lan0"} {
		if err := l.DoClient(func() error { return disableChecksumOffload(name) }); err != nil {
			t.Fatal(err)
		}
	}
	l.neighbours()
	return l
}

// neighbours adds the servers' hardware addresses to the host's neighbour table:
// packets to an unresolved neighbour do not use the fast path for the first
// second.
func (l *lan) neighbours() {
	l.Helper()
	for name, at := range far {
		var lan *net.Interface
		if err := l.servers[name].Do(func() (err error) {
			lan, err = net.InterfaceByName("lan0")
			return err
		}); err != nil {
			l.Fatal(err)
		}
		for _, a := range []netip.Addr{at.v4, at.v6} {
			l.sh(l.DoServer, fmt.Sprintf("ip neigh replace %s lladdr %s nud noarp dev lan0", a, lan.HardwareAddr))
		}
	}
}

// passes attaches an XDP program that passes all packets to a link.
func (l *lan) passes(in place.Place, name string) (on link.Link) {
	l.Helper()
	const pass = 2
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.XDP, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, pass), asm.Return()}})
	if err != nil {
		l.Fatal(err)
	}
	defer prog.Close()
	if err := in(func() error {
		at, err := net.InterfaceByName(name)
		if err == nil {
			on, err = link.AttachXDP(link.XDPOptions{Interface: at.Index, Program: prog, Flags: link.XDPDriverMode})
		}
		return err
	}); err != nil {
		l.Fatal(err)
	}
	l.Cleanup(func() { on.Close() })
	return on
}

// disableChecksumOffload turns off checksum offload for a link in the calling thread's namespace
// (ETHTOOL_STXCSUM of linux/ethtool.h).
func disableChecksumOffload(name string) error {
	const setChecksums = 0x17
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	off := &struct{ command, value uint32 }{command: setChecksums}
	request := struct {
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte
	}{data: unsafe.Pointer(off)}
	copy(request.name[:], name)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL,
		uintptr(unsafe.Pointer(&request))); errno != 0 {
		return fmt.Errorf("turn off checksum offload of %s: %w", name, errno)
	}
	return nil
}
