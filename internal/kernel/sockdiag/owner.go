package sockdiag

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"fairlead/internal/kernel/nlutil"
	"fairlead/internal/model"
	"fairlead/internal/plan"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Owner is the process that uses a host port.
type Owner struct {
	PID     int    `json:"pid"`
	Command string `json:"command"`
	// Container is the short ID of the container that the process runs in,
	// empty outside one.
	Container string `json:"container,omitempty"`
}

// String names the owner as in `nginx (pid 4711)`.
func (o Owner) String() string {
	if o.PID == 0 {
		return "a socket whose process cannot be seen"
	}
	if o.Container != "" {
		return fmt.Sprintf("%s (pid %d, container %s)", o.Command, o.PID, o.Container)
	}
	return fmt.Sprintf("%s (pid %d)", o.Command, o.PID)
}

// PortOwner finds the process whose socket keeps other sockets from binding the
// port on the address. It returns the zero Owner if the process cannot be found:
// kernels before 6.8 do not list TCP sockets that are bound but do not listen.
func (h *Reader) PortOwner(proto model.Proto, at netip.AddrPort) (Owner, error) {
	found, err := h.boundTo(proto, at.Port(), bound)
	for _, s := range found {
		if s.covers(at.Addr()) {
			return processOfSocket(s.inode), err
		}
	}
	// An IPv4 socket can also prevent a bind to :: for both families.
	if at.Addr() == netip.IPv6Unspecified() && len(found) > 0 {
		return processOfSocket(found[0].inode), err
	}
	return Owner{}, err
}

// PortInUseError reports that a socket uses a port that is to be mapped.
type PortInUseError struct {
	Proto model.Proto
	Addr  netip.AddrPort
	Owner Owner
}

// Error implements error.
func (e *PortInUseError) Error() string {
	return fmt.Sprintf("port %s/%s is in use by %s", e.Addr, e.Proto, e.Owner)
}

// CheckPorts returns a *PortInUseError if a socket of the host uses a host port of
// one of the port mappings. Connected UDP sockets are those of clients: they do
// not count.
func (h *Reader) CheckPorts(mappings []plan.EBPFMapping) error {
	for _, proto := range []model.Proto{model.TCP, model.UDP} {
		mappings := slices.DeleteFunc(slices.Clone(mappings), func(l plan.EBPFMapping) bool { return l.Proto != proto })
		if len(mappings) == 0 {
			continue
		}
		sockets, err := h.boundTo(proto, 0, bound)
		if err != nil {
			return err
		}
		for _, s := range sockets {
			for _, l := range mappings {
				if !s.connected && l.Ports.Overlaps(model.Port(s.port)) && s.covers(l.Host) {
					return &PortInUseError{Proto: proto, Addr: netip.AddrPortFrom(s.addr, s.port),
						Owner: processOfSocket(s.inode)}
				}
			}
		}
	}
	return nil
}

// boundTo lists the sockets that are bound to the port, or to any port if it is 0: those of TCP in the states only.
func (h *Reader) boundTo(proto model.Proto, port uint16, states tcpStates) (found []boundSocket, err error) {
	err = h.ns.Do(func() error {
		for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
			list, err := nlutil.Retry(func() ([]boundSocket, error) { return dumpBound(proto, family, port, states) })
			if err != nil {
				return fmt.Errorf("list %s sockets: %w", proto, err)
			}
			found = append(found, list...)
		}
		return nil
	})
	return found, err
}

// boundSocket is a socket that is bound to a local address.
type boundSocket struct {
	addr netip.Addr
	port uint16
	// connected says that it has a peer.
	connected bool
	// v6only says that :: does not include IPv4.
	v6only bool
	inode  uint32
	// link is the index of the link to which it is bound; 0 for none.
	link uint32
	// received and sent are the lengths of its queues. For a listener they are the
	// number of connections that wait, and the limit of that number.
	received, sent uint32
	// cgroup is the id of the cgroup that created the socket; 0 before Linux 5.9.
	cgroup uint64
}

// covers reports whether the socket's address conflicts with the given address.
// Either may be unspecified.
func (s boundSocket) covers(at netip.Addr) bool {
	if s.addr.Is4() != at.Is4() {
		return at.Is4() && s.addr.IsUnspecified() && !s.v6only
	}
	return s.addr.IsUnspecified() || at.IsUnspecified() || s.addr == at
}

// The TCP states of sockets that reserve a port (tcp_states.h). For UDP, sockets
// in all states are listed.
const (
	stateListen        = 10
	stateBoundInactive = 13 // since Linux 6.8
)

// tcpStates are TCP states, a bit for each.
type tcpStates uint32

// The states that are asked for. For sockets that do not listen, the kernel searches a large table.
const (
	listening tcpStates = 1 << stateListen
	bound               = listening | 1<<stateBoundInactive
)

// Lengths in bytes of struct inet_diag_req_v2 and of struct inet_diag_msg, which
// attributes follow, and the attributes' numbers (linux/inet_diag.h).
const (
	RequestLen     = 56
	diagMessageLen = 72
	diagV6Only     = 11 // INET_DIAG_SKV6ONLY
	diagCgroup     = 21 // INET_DIAG_CGROUP_ID, since Linux 5.9
)

// dumpBound lists the sockets in the calling thread's namespace that are bound to
// the port, or to any port if it is 0: those of TCP in the states only.
func dumpBound(proto model.Proto, family uint8, port uint16, states tcpStates) ([]boundSocket, error) {
	ask := make(Request, RequestLen)
	ask[0], ask[1] = family, nlutil.Protocols[proto]
	if proto == model.UDP {
		states = ^tcpStates(0)
	}
	binary.NativeEndian.PutUint32(ask[4:], uint32(states))
	binary.BigEndian.PutUint16(ask[8:], port)
	req := nl.NewNetlinkRequest(nl.SOCK_DIAG_BY_FAMILY, unix.NLM_F_DUMP)
	req.AddData(ask)
	messages, err := req.Execute(unix.NETLINK_INET_DIAG, nl.SOCK_DIAG_BY_FAMILY)
	var list []boundSocket
	for _, m := range messages {
		if len(m) < diagMessageLen || port != 0 && binary.BigEndian.Uint16(m[4:]) != port {
			continue
		}
		s := boundSocket{inode: binary.NativeEndian.Uint32(m[68:]), port: binary.BigEndian.Uint16(m[4:]),
			connected: binary.BigEndian.Uint16(m[6:]) != 0, link: binary.NativeEndian.Uint32(m[40:]),
			received: binary.NativeEndian.Uint32(m[56:]), sent: binary.NativeEndian.Uint32(m[60:])}
		s.addr = netip.AddrFrom16([16]byte(m[8:24])).Unmap()
		if family == unix.AF_INET {
			s.addr = netip.AddrFrom4([4]byte(m[8:12]))
		}
		s.v6only = nlutil.Flag(m[diagMessageLen:], diagV6Only)
		if id := nlutil.Attribute(m[diagMessageLen:], diagCgroup); len(id) == 8 {
			s.cgroup = binary.NativeEndian.Uint64(id)
		}
		list = append(list, s)
	}
	return list, err
}

// Request is a struct inet_diag_req_v2.
type Request []byte

// Len implements nl.NetlinkRequestData.
func (r Request) Len() int { return len(r) }

// Serialize implements nl.NetlinkRequestData.
func (r Request) Serialize() []byte { return r }

var containerID = regexp.MustCompile(`([0-9a-f]{12})[0-9a-f]{52}`)

// processOfSocket looks for the process that has the socket open.
func processOfSocket(inode uint32) Owner { return processesOf([]uint32{inode})[inode] }

// processesOf searches /proc for the processes that have the sockets open. If
// several have the same socket open, it returns the first.
func processesOf(inodes []uint32) map[uint32]Owner {
	found := map[uint32]Owner{}
	fds, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, fd := range fds {
		if len(found) == len(inodes) {
			break
		}
		target, err := os.Readlink(fd)
		number, socket := strings.CutPrefix(target, "socket:[")
		if err != nil || !socket {
			continue
		}
		n, err := strconv.ParseUint(strings.TrimSuffix(number, "]"), 10, 32)
		inode := uint32(n)
		if err != nil || !slices.Contains(inodes, inode) {
			continue
		}
		if _, again := found[inode]; !again {
			found[inode] = process(filepath.Dir(filepath.Dir(fd)))
		}
	}
	return found
}

// process reads the pid, command and container of a process from its directory
// in /proc.
func process(dir string) Owner {
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

// ProcessOf returns the command and the container of a process.
func ProcessOf(pid int) Owner { return process(fmt.Sprintf("/proc/%d", pid)) }
