package sockdiag

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"fairlead/internal/kernel/nlutil"
	"fairlead/internal/model"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Pair is the address pair of a connected socket.
type Pair struct{ Local, Remote netip.AddrPort }

// Pairs returns the host's connected sockets that use the port at either end.
func (h *Reader) Pairs(proto model.Proto, port uint16) (found []Pair, err error) {
	err = h.ns.Do(func() error {
		for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
			list, err := nlutil.Retry(func() ([]Pair, error) { return dumpPairs(proto, family) })
			if err != nil {
				return fmt.Errorf("list %s sockets: %w", proto, err)
			}
			for _, p := range list {
				if p.Local.Port() == port || p.Remote.Port() == port {
					found = append(found, p)
				}
			}
		}
		return nil
	})
	return found, err
}

// dumpPairs returns the connected sockets in the calling thread's namespace (see
// struct inet_diag_msg).
func dumpPairs(proto model.Proto, family uint8) ([]Pair, error) {
	ask := make(Request, RequestLen)
	ask[0], ask[1] = family, nlutil.Protocols[proto]
	binary.NativeEndian.PutUint32(ask[4:], ^uint32(0))
	req := nl.NewNetlinkRequest(nl.SOCK_DIAG_BY_FAMILY, unix.NLM_F_DUMP)
	req.AddData(ask)
	messages, err := req.Execute(unix.NETLINK_INET_DIAG, nl.SOCK_DIAG_BY_FAMILY)
	var list []Pair
	for _, m := range messages {
		if len(m) < diagMessageLen || binary.BigEndian.Uint16(m[6:]) == 0 {
			continue
		}
		at := func(addr, port int) netip.AddrPort {
			a := netip.AddrFrom16([16]byte(m[addr : addr+16])).Unmap()
			if family == unix.AF_INET {
				a = netip.AddrFrom4([4]byte(m[addr : addr+4]))
			}
			return netip.AddrPortFrom(a, binary.BigEndian.Uint16(m[port:]))
		}
		list = append(list, Pair{at(8, 4), at(24, 6)})
	}
	return list, err
}
