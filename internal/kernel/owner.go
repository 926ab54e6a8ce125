package kernel

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"fairlead/internal/model"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Owner is whoever holds a host port.
type Owner struct {
	PID     int
	Command string
	// Container is the short ID of the container that the process runs in,
	// empty outside one.
	Container string
}

// String names the owner as in `held by nginx (pid 4711)`.
func (o Owner) String() string {
	if o.PID == 0 {
		return "a socket whose process cannot be seen"
	}
	if o.Container != "" {
		return fmt.Sprintf("%s (pid %d, container %s)", o.Command, o.PID, o.Container)
	}
	return fmt.Sprintf("%s (pid %d)", o.Command, o.PID)
}

// PortOwner finds the process that holds the port on the address, or on any
// address that covers it. The zero Owner means that nobody can be named: a
// TCP socket that is bound but does not listen is shown by no kernel before
// 6.8.
func (h *Host) PortOwner(proto model.Proto, at netip.AddrPort) (Owner, error) {
	handle, err := netlink.NewHandleAt(netns.NsHandle(h.ns.File().Fd()), unix.NETLINK_INET_DIAG)
	if err != nil {
		return Owner{}, fmt.Errorf("open sock_diag: %w", err)
	}
	defer handle.Close()
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		sockets, err := socketDump(handle, proto, family)
		if err != nil {
			return Owner{}, err
		}
		for _, s := range sockets {
			if holds(s, proto, at) {
				return processOfSocket(s.INode), nil
			}
		}
	}
	return Owner{}, nil
}

func socketDump(handle *netlink.Handle, proto model.Proto, family uint8) ([]*netlink.Socket, error) {
	dump := handle.SocketDiagTCP
	if proto == model.UDP {
		dump = handle.SocketDiagUDP
	}
	list, err := retry(func() ([]*netlink.Socket, error) { return dump(family) })
	if err != nil {
		return nil, fmt.Errorf("list %s sockets: %w", proto, err)
	}
	return list, nil
}

// tcpListen is TCP_LISTEN of the kernel's tcp_states.h.
const tcpListen = 10

func holds(s *netlink.Socket, proto model.Proto, at netip.AddrPort) bool {
	if s.ID.SourcePort != at.Port() || (proto == model.TCP && s.State != tcpListen) {
		return false
	}
	local, _ := netip.AddrFromSlice(s.ID.Source)
	local = local.Unmap()
	return local.IsUnspecified() || at.Addr().IsUnspecified() || local == at.Addr()
}

var containerID = regexp.MustCompile(`([0-9a-f]{12})[0-9a-f]{52}`)

// processOfSocket looks through /proc for the process that has the socket
// open; the first found names it.
func processOfSocket(inode uint32) Owner {
	want := fmt.Sprintf("socket:[%d]", inode)
	fds, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, fd := range fds {
		if target, err := os.Readlink(fd); err != nil || target != want {
			continue
		}
		dir := filepath.Dir(filepath.Dir(fd))
		var o Owner
		fmt.Sscan(filepath.Base(dir), &o.PID)
		comm, _ := os.ReadFile(dir + "/comm")
		o.Command = strings.TrimSpace(string(comm))
		cgroup, _ := os.ReadFile(dir + "/cgroup")
		if m := containerID.FindSubmatch(cgroup); m != nil {
			o.Container = string(m[1])
		}
		return o
	}
	return Owner{}
}
