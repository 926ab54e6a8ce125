package rtnl

import (
	"net"
	"net/netip"

	"fairlead/internal/kernel/nlutil"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// NeighbourEntry is an entry of the kernel's neighbour table, or of a bridge's
// forwarding table (FDB).
type NeighbourEntry struct {
	// Link is the interface, or the bridge port for an entry of a forwarding table.
	Link string
	// Address is invalid in an entry of a forwarding table.
	Address netip.Addr
	MAC     net.HardwareAddr
	// Permanent says that the kernel uses the entry without resolving the address,
	// or, in a forwarding table, that the entry was not learned.
	Permanent bool
	// Valid says that the kernel uses the entry at once, without waiting for the
	// neighbour to answer.
	Valid bool
	// Failed says that the neighbour did not answer when the kernel last asked.
	Failed bool
	// Proxied says that it is not a neighbour: the host answers for the address on the link
	// (`ip neigh add proxy`).
	Proxied bool
}

// NeighbourEntries lists the neighbours in the host's namespace, and the entries
// of its bridges' forwarding tables.
func (h *Reader) NeighbourEntries() (neighbours, forwarding []NeighbourEntry, err error) {
	links, err := h.Indices()
	if err != nil {
		return nil, nil, err
	}
	names := map[int]string{}
	for name, index := range links {
		names[int(index)] = name
	}
	for _, family := range []int{unix.AF_INET, unix.AF_INET6, unix.AF_BRIDGE} {
		list, err := h.Neighbours(0, family)
		if err != nil {
			return nil, nil, err
		}
		for _, n := range list {
			e := NeighbourEntry{Link: names[n.LinkIndex], MAC: n.HardwareAddr,
				Permanent: n.State&(unix.NUD_PERMANENT|unix.NUD_NOARP) != 0,
				Valid: n.State&(unix.NUD_REACHABLE|unix.NUD_STALE|unix.NUD_DELAY|unix.NUD_PROBE|
					unix.NUD_PERMANENT|unix.NUD_NOARP) != 0, Failed: n.State&unix.NUD_FAILED != 0}
			if family == unix.AF_BRIDGE {
				forwarding = append(forwarding, e)
				continue
			}
			if e.Address = nlutil.Addr(n.IP); e.Address.IsValid() && (len(e.MAC) > 0 || e.Failed) {
				neighbours = append(neighbours, e)
			}
		}
	}
	proxied, err := dump(h, "", "addresses for which links answer",
		func(handle *netlink.Handle) ([]netlink.Neigh, error) { return handle.NeighProxyList(0, unix.AF_UNSPEC) })
	if err != nil {
		return nil, nil, err
	}
	for _, n := range proxied {
		neighbours = append(neighbours, NeighbourEntry{Link: names[n.LinkIndex], Address: nlutil.Addr(n.IP),
			Proxied: true})
	}
	return neighbours, forwarding, nil
}

// Neighbours returns the host's neighbours of the address family on the link with
// the index, as the kernel reports them.
func (h *Reader) Neighbours(index, family int) ([]netlink.Neigh, error) {
	return dump(h, "", "neighbours",
		func(handle *netlink.Handle) ([]netlink.Neigh, error) { return handle.NeighList(index, family) })
}

// Neighbour returns the host's neighbour with an address on the link with the index. The error is unix.ENOENT if
// the kernel does not know it.
func (h *Reader) Neighbour(index int, of netip.Addr) (*netlink.Neigh, error) {
	header := new(netlink.Ndmsg) // the kernel refuses padding that is not 0
	header.Family, header.Index = unix.AF_INET6, uint32(index)
	if of.Is4() {
		header.Family = unix.AF_INET
	}
	return h.askNeighbour(header, nl.NewRtAttr(netlink.NDA_DST, of.AsSlice()))
}

// PortTo returns the index of the port of a bridge behind which a hardware address is. It is the bridge's own index
// for its own address. The error is unix.ENOENT if the bridge does not know the address.
func (h *Reader) PortTo(bridge int, of net.HardwareAddr) (int, error) {
	header := new(netlink.Ndmsg)
	header.Family = unix.AF_BRIDGE
	n, err := h.askNeighbour(header, nl.NewRtAttr(netlink.NDA_LLADDR, of),
		nl.NewRtAttr(netlink.NDA_MASTER, nl.Uint32Attr(uint32(bridge))))
	if err != nil {
		return 0, err
	}
	return n.LinkIndex, nil
}

// askNeighbour requests one entry of a neighbour or forwarding table.
func (h *Reader) askNeighbour(header *netlink.Ndmsg, attributes ...*nl.RtAttr) (found *netlink.Neigh, err error) {
	req := nl.NewNetlinkRequest(unix.RTM_GETNEIGH, 0)
	req.AddData(header)
	for _, a := range attributes {
		req.AddData(a)
	}
	err = h.Netns().Do(func() error {
		answers, err := req.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWNEIGH)
		if err == nil && len(answers) == 0 {
			err = unix.ENOENT
		}
		if err == nil {
			found, err = netlink.NeighDeserialize(answers[0])
		}
		return err
	})
	return found, err
}
