package inspect

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"fairlead/internal/kernel/counter"
	"fairlead/internal/kernel/netns"
	"fairlead/internal/kernel/nlutil"
	"fairlead/internal/plan"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// EndpointLink identifies the link of an endpoint in its sandbox.
type EndpointLink struct {
	// Endpoint is the endpoint that the link was made for.
	Endpoint string
	// Sandbox is the path of the sandbox's namespace.
	Sandbox string
	// Name is the name of the link in the sandbox; empty if another program has
	// named it.
	Name string
}

// LinkTraffic returns the traffic of the endpoints' links, by the endpoints'
// names. It leaves out links that do not exist. It reads the counters of the end
// in the sandbox, because packets that eBPF programs redirect into a sandbox do
// not pass the host's end. It reads them from the host's namespace
// (IFLA_TARGET_NETNSID), without entering the sandboxes, if the host has ids for
// their namespaces.
func (h *Reader) LinkTraffic(links []EndpointLink) (map[string]counter.Traffic, error) {
	conn, err := nlutil.Open(h.ns, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("read counters of links: %w", err)
	}
	defer conn.Close()
	peers, err := peerEnds(conn)
	if err != nil {
		return nil, fmt.Errorf("read counters of links: %w", err)
	}
	found := make(map[string]counter.Traffic, len(links))
	for _, l := range links {
		end, there := peers[l.Endpoint]
		if !there {
			end, there, err = h.endInside(conn, l)
		} else {
			end, err = linkAt(conn, end)
		}
		switch {
		case nlutil.Absent(err) || errors.Is(err, unix.EINVAL): // the link or its sandbox does not exist any more
		case err != nil:
			return nil, fmt.Errorf("read counters of the link of %s: %w", l.Endpoint, err)
		case there:
			found[l.Endpoint] = end.traffic
		}
	}
	return found, nil
}

// linkEnd is one end of a link: its index, name and alias in the namespace with the
// id nsid, and its counters.
type linkEnd struct {
	index int32
	nsid  int32
	name  string
	alias string
	// peer and peerNSID are the index and namespace id of a veth's other end.
	peer, peerNSID int32
	traffic        counter.Traffic
}

// peerEnds returns the other ends of Fairlead's veth links on the host, by the
// names of their endpoints.
func peerEnds(conn *nlutil.Conn) (map[string]linkEnd, error) {
	list, err := nlutil.Retry(func() ([]linkEnd, error) {
		return askLinks(conn, unix.NLM_F_DUMP, linkEnd{nsid: netns.NoID})
	})
	if err != nil {
		return nil, err
	}
	ends := map[string]linkEnd{}
	for _, l := range list {
		if endpoint, ours := strings.CutPrefix(l.alias, plan.Mark+":"); ours && l.peer != 0 &&
			l.peerNSID != netns.NoID {
			ends[endpoint] = linkEnd{index: l.peer, nsid: l.peerNSID}
		}
	}
	return ends, nil
}

// linkAt reads one link.
func linkAt(conn *nlutil.Conn, at linkEnd) (linkEnd, error) {
	list, err := askLinks(conn, 0, at)
	if err != nil || len(list) == 0 {
		return linkEnd{}, errors.Join(err, unix.ENODEV)
	}
	return list[0], nil
}

// endInside finds a link in its sandbox that has no end on the host.
func (h *Reader) endInside(conn *nlutil.Conn, l EndpointLink) (linkEnd, bool, error) {
	ns, err := netns.Open(l.Sandbox)
	if err != nil {
		return linkEnd{}, false, err
	}
	defer ns.Close()
	id, err := h.rtnl.IDOf(ns)
	if err != nil {
		return linkEnd{}, false, err
	}
	if id == netns.NoID { // it cannot be read from the host's namespace
		conn, err = nlutil.Open(ns, unix.NETLINK_ROUTE)
		if err != nil {
			return linkEnd{}, false, err
		}
		defer conn.Close()
	}
	list, err := nlutil.Retry(func() ([]linkEnd, error) {
		return askLinks(conn, unix.NLM_F_DUMP, linkEnd{nsid: int32(id)})
	})
	for _, end := range list {
		marked := strings.HasPrefix(end.alias, plan.Mark)
		if end.alias == plan.Mark+":"+l.Endpoint || marked && end.name == l.Name {
			return end, true, err
		}
	}
	return linkEnd{}, false, err
}

// askLinks reads the link with the index at.index, or with NLM_F_DUMP all links,
// in the namespace with the id at.nsid.
func askLinks(conn *nlutil.Conn, how int, at linkEnd) ([]linkEnd, error) {
	attributes := netlink.NewAttributeEncoder()
	attributes.Uint32(unix.IFLA_EXT_MASK, nlutil.SkipStats)
	if at.nsid != netns.NoID {
		attributes.Int32(unix.IFLA_TARGET_NETNSID, at.nsid)
	}
	body, err := attributes.Encode()
	if err != nil {
		return nil, err
	}
	head := make([]byte, unix.SizeofIfInfomsg)
	binary.NativeEndian.PutUint32(head[4:], uint32(at.index))
	answers, err := conn.Request(unix.RTM_GETLINK, how, append(head, body...))
	if err != nil {
		return nil, err
	}
	list := make([]linkEnd, len(answers))
	for i, m := range answers {
		if list[i], err = decodeLink(m, at.nsid); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// decodeLink decodes a message about a link.
func decodeLink(message []byte, nsid int32) (linkEnd, error) {
	if len(message) < unix.SizeofIfInfomsg {
		return linkEnd{}, errors.New("read a link: the kernel's answer is too short")
	}
	end := linkEnd{index: int32(binary.NativeEndian.Uint32(message[4:])), nsid: nsid, peerNSID: netns.NoID}
	attrs := message[unix.SizeofIfInfomsg:]
	end.name = nlutil.Text(attrs, unix.IFLA_IFNAME)
	end.alias = nlutil.Text(attrs, unix.IFLA_IFALIAS)
	end.traffic = decodeTraffic(nlutil.Attribute(attrs, unix.IFLA_STATS64))
	for kind, into := range map[uint16]*int32{unix.IFLA_LINK: &end.peer, unix.IFLA_LINK_NETNSID: &end.peerNSID} {
		if value := nlutil.Attribute(attrs, kind); len(value) == 4 {
			*into = int32(binary.NativeEndian.Uint32(value))
		}
	}
	return end, nil
}

// decodeTraffic decodes a struct rtnl_link_stats64.
func decodeTraffic(b []byte) counter.Traffic {
	if len(b) < 8*8 {
		return counter.Traffic{}
	}
	field := func(i int) uint64 { return binary.NativeEndian.Uint64(b[8*i:]) }
	inOut := func(in, out int) counter.InOut { return counter.InOut{In: field(in), Out: field(out)} }
	return counter.Traffic{Packets: inOut(0, 1), Bytes: inOut(2, 3), Drops: inOut(6, 7)}
}
