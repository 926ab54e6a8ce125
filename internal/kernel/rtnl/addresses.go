package rtnl

import (
	"maps"
	"net"
	"net/netip"
	"slices"

	"fairlead/internal/kernel/nlutil"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Addresses returns the addresses of a link, without temporary IPv6 addresses: the
// kernel adds and removes those itself (RFC 8981).
func (h *Reader) Addresses(netns, name string) ([]netip.Prefix, error) {
	handle, link, err := h.handles.Link(netns, name)
	if err != nil {
		return nil, err
	}
	list, err := nlutil.Retry(func() ([]netlink.Addr, error) { return handle.AddrList(link, unix.AF_UNSPEC) })
	var prefixes []netip.Prefix
	for _, a := range list {
		p := nlutil.Prefix(a.IPNet.IP, a.Mask)
		if p.Addr().Is4() || a.Flags&unix.IFA_F_TEMPORARY == 0 {
			prefixes = append(prefixes, p)
		}
	}
	return prefixes, err
}

// LinkAddresses are the addresses of a link of the host's namespace.
type LinkAddresses struct {
	// Hardware is the link's hardware address, and Permanent that of its device. Each can be empty.
	Hardware, Permanent net.HardwareAddr
	Addresses           []netip.Addr
}

// AddressReader reads the addresses of all links of the host's namespace. Its zero value with a Reader can be used. Its
// method may not be called concurrently.
type AddressReader struct {
	From *Reader
	// of are the addresses of the last call, by the index of the link, and links its result.
	of    map[int][]netip.Addr
	links []LinkAddresses
}

// Read returns the addresses. It reads the links only if an address has changed since the last call, because there can
// be a thousand links.
func (r *AddressReader) Read() ([]LinkAddresses, error) {
	list, err := listAddresses(r.From, "", unix.AF_UNSPEC)
	if err != nil {
		return nil, err
	}
	of := map[int][]netip.Addr{}
	for _, a := range list {
		of[a.LinkIndex] = append(of[a.LinkIndex], nlutil.Prefix(a.IP, a.Mask).Addr())
	}
	if r.links != nil && maps.EqualFunc(r.of, of, slices.Equal) {
		return r.links, nil
	}
	links, err := r.From.ListLinks("")
	if err != nil {
		return nil, err
	}
	r.of, r.links = of, nil
	for _, l := range links {
		a := l.Attrs()
		r.links = append(r.links, LinkAddresses{Hardware: a.HardwareAddr, Permanent: a.PermHWAddr,
			Addresses: of[a.Index]})
	}
	return r.links, nil
}

// LocalAddrs returns the addresses of the host's namespace.
func (h *Reader) LocalAddrs() ([]netip.Addr, error) {
	list, err := listAddresses(h, "", unix.AF_UNSPEC)
	if err != nil {
		return nil, err
	}
	var addrs []netip.Addr
	for _, a := range list {
		addrs = append(addrs, nlutil.Prefix(a.IPNet.IP, a.Mask).Addr())
	}
	return addrs, nil
}

// Primaries returns for each link of the host's namespace, by its index, the IPv4 address
// with which the kernel masquerades packets to next hops in the address's network: the
// first primary one that has a network. Links without such an address are left out.
func Primaries(h *Reader) (map[int]netip.Prefix, error) {
	list, err := listAddresses(h, "", unix.AF_INET)
	if err != nil {
		return nil, err
	}
	found := map[int]netip.Prefix{}
	for _, a := range list {
		p := nlutil.Prefix(a.IP, a.Mask)
		apart := a.Peer != nil && !a.Peer.IP.Equal(a.IP) // the address of a point-to-point link
		if _, known := found[a.LinkIndex]; known || apart || a.Flags&unix.IFA_F_SECONDARY != 0 ||
			a.Scope != unix.RT_SCOPE_UNIVERSE || p.Bits() == 32 {
			continue
		}
		found[a.LinkIndex] = p
	}
	return found, nil
}
