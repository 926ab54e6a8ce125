package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"fairlead/internal/plan"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// InOut is a count in each direction as the workload sees it: In is towards it.
type InOut struct {
	In  uint64 `json:"in"`
	Out uint64 `json:"out"`
}

// Add returns the sum.
func (n InOut) Add(o InOut) InOut { return InOut{n.In + o.In, n.Out + o.Out} }

// Traffic is what has gone by something. Bytes are those of whole frames, and
// what the kernel handles as one packet (segmentation offload) is one.
type Traffic struct {
	Bytes   InOut `json:"bytes"`
	Packets InOut `json:"packets"`
	Drops   InOut `json:"drops"`
}

// Add returns the sum.
func (t Traffic) Add(o Traffic) Traffic {
	return Traffic{t.Bytes.Add(o.Bytes), t.Packets.Add(o.Packets), t.Drops.Add(o.Drops)}
}

// EndpointLink says whose link in a sandbox is meant.
type EndpointLink struct {
	// Endpoint is whom we have made it for.
	Endpoint string
	// Sandbox is the path of the sandbox's namespace.
	Sandbox string
	// Name is the link's there; empty if somebody else has named it.
	Name string
}

// LinkTraffic returns what went by the links of endpoints, by their names. One
// that is not there is left out. The sandbox's own end is asked, because what
// eBPF programs put straight into a sandbox never meets the host's; and it is
// asked from the host's namespace (IFLA_TARGET_NETNSID), so that none has to be
// entered.
func (h *Host) LinkTraffic(links []EndpointLink) (map[string]Traffic, error) {
	conn, err := netlink.Dial(unix.NETLINK_ROUTE, &netlink.Config{NetNS: int(h.ns.File().Fd())})
	if err != nil {
		return nil, fmt.Errorf("read counters of links: %w", err)
	}
	defer conn.Close()
	peers, err := peerEnds(conn)
	if err != nil {
		return nil, fmt.Errorf("read counters of links: %w", err)
	}
	found := make(map[string]Traffic, len(links))
	for _, l := range links {
		end, there := peers[l.Endpoint]
		if !there {
			end, there, err = h.endInside(conn, l)
		} else {
			end, err = linkAt(conn, end)
		}
		switch {
		case absent(err) || errors.Is(err, unix.EINVAL): // the link or its sandbox has gone
		case err != nil:
			return nil, fmt.Errorf("read counters of the link of %s: %w", l.Endpoint, err)
		case there:
			found[l.Endpoint] = end.traffic
		}
	}
	return found, nil
}

// linkEnd is a link: which it is in the namespace with that id, and whose.
type linkEnd struct {
	index int32
	nsid  int32
	name  string
	alias string
	// peer and peerNSID are the other end's of a veth that leads elsewhere.
	peer, peerNSID int32
	traffic        Traffic
}

// peerEnds returns the other ends of the host's veth links that are ours, by
// whom they are for.
func peerEnds(conn *netlink.Conn) (map[string]linkEnd, error) {
	list, err := retry(func() ([]linkEnd, error) { return askLinks(conn, netlink.Dump, linkEnd{nsid: NoSandbox}) })
	if err != nil {
		return nil, err
	}
	ends := map[string]linkEnd{}
	for _, l := range list {
		if whose, ours := strings.CutPrefix(l.alias, plan.Mark+":"); ours && l.peer != 0 && l.peerNSID != NoSandbox {
			ends[whose] = linkEnd{index: l.peer, nsid: l.peerNSID}
		}
	}
	return ends, nil
}

// linkAt asks for one link.
func linkAt(conn *netlink.Conn, at linkEnd) (linkEnd, error) {
	list, err := askLinks(conn, 0, at)
	if err != nil || len(list) == 0 {
		return linkEnd{}, errors.Join(err, unix.ENODEV)
	}
	return list[0], nil
}

// endInside looks for a link in its sandbox that has no end on the host.
func (h *Host) endInside(conn *netlink.Conn, l EndpointLink) (linkEnd, bool, error) {
	ns, err := OpenNetns(l.Sandbox)
	if err != nil {
		return linkEnd{}, false, err
	}
	defer ns.Close()
	id, err := h.nameNamespace(ns)
	if err != nil {
		return linkEnd{}, false, err
	}
	list, err := retry(func() ([]linkEnd, error) { return askLinks(conn, netlink.Dump, linkEnd{nsid: int32(id)}) })
	for _, end := range list {
		marked := strings.HasPrefix(end.alias, plan.Mark)
		if end.alias == plan.Mark+":"+l.Endpoint || marked && end.name == l.Name {
			return end, true, err
		}
	}
	return linkEnd{}, false, err
}

// skipStats is RTEXT_FILTER_SKIP_STATS of linux/rtnetlink.h: it leaves out the
// counters of IPv6, which take the kernel most of its time, and not those of the
// link.
const skipStats = 1 << 3

// askLinks asks for the link of that index, or with netlink.Dump for all, in
// the namespace with that id.
func askLinks(conn *netlink.Conn, how netlink.HeaderFlags, at linkEnd) ([]linkEnd, error) {
	attributes := netlink.NewAttributeEncoder()
	attributes.Uint32(unix.IFLA_EXT_MASK, skipStats)
	if at.nsid != NoSandbox {
		attributes.Int32(unix.IFLA_TARGET_NETNSID, at.nsid)
	}
	body, err := attributes.Encode()
	if err != nil {
		return nil, err
	}
	head := make([]byte, unix.SizeofIfInfomsg)
	binary.NativeEndian.PutUint32(head[4:], uint32(at.index))
	answers, err := conn.Execute(netlink.Message{
		Header: netlink.Header{Type: unix.RTM_GETLINK, Flags: netlink.Request | how}, Data: append(head, body...)})
	if err != nil {
		return nil, err
	}
	list := make([]linkEnd, len(answers))
	for i, m := range answers {
		if list[i], err = decodeLink(m.Data, at.nsid); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// decodeLink reads a message about a link.
func decodeLink(message []byte, nsid int32) (linkEnd, error) {
	if len(message) < unix.SizeofIfInfomsg {
		return linkEnd{}, errors.New("the kernel's answer is too short")
	}
	end := linkEnd{index: int32(binary.NativeEndian.Uint32(message[4:])), nsid: nsid, peerNSID: NoSandbox}
	d, err := netlink.NewAttributeDecoder(message[unix.SizeofIfInfomsg:])
	if err != nil {
		return end, err
	}
	for d.Next() {
		switch d.Type() {
		case unix.IFLA_IFNAME:
			end.name = d.String()
		case unix.IFLA_IFALIAS:
			end.alias = d.String()
		case unix.IFLA_LINK:
			end.peer = d.Int32()
		case unix.IFLA_LINK_NETNSID:
			end.peerNSID = d.Int32()
		case unix.IFLA_STATS64:
			end.traffic = decodeTraffic(d.Bytes())
		}
	}
	return end, d.Err()
}

// decodeTraffic reads a struct rtnl_link_stats64.
func decodeTraffic(b []byte) Traffic {
	if len(b) < 8*8 {
		return Traffic{}
	}
	field := func(i int) uint64 { return binary.NativeEndian.Uint64(b[8*i:]) }
	return Traffic{Packets: InOut{field(0), field(1)}, Bytes: InOut{field(2), field(3)}, Drops: InOut{field(6), field(7)}}
}
