package base

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"fairlead/internal/model/gateway"
)

// clientAddress returns the address that a request comes from. It is not valid if the
// request does not say so.
type clientAddress func(*http.Request) netip.Addr

// NewClientAddress returns the function for a strategy: the peer's address (nil, or a
// depth of 0); the depth-th address in X-Forwarded-For from the right; or the rightmost
// one that is not excluded.
func NewClientAddress(v *gateway.IPStrategy) (clientAddress, error) {
	if v == nil {
		return PeerAddress, nil
	}
	excluded, err := ParsePrefixes(v.ExcludedIPs)
	switch {
	case err != nil:
		return nil, fmt.Errorf("read excludedIPs: %w", err)
	case v.Depth < 0:
		return nil, errors.New("read ipStrategy: depth must not be negative")
	case v.IPv6Subnet != nil && (*v.IPv6Subnet < 0 || *v.IPv6Subnet > 128):
		return nil, errors.New("read ipStrategy: ipv6Subnet must be between 0 and 128")
	}
	find := PeerAddress
	switch {
	case v.Depth > 0:
		find = func(r *http.Request) netip.Addr { return atDepth(forwardedFor(r), v.Depth) }
	case len(excluded) > 0:
		find = func(r *http.Request) netip.Addr { return notIn(forwardedFor(r), excluded) }
	}
	if v.IPv6Subnet == nil {
		return find, nil
	}
	return func(r *http.Request) netip.Addr {
		address := find(r)
		if prefix, err := address.Prefix(*v.IPv6Subnet); err == nil && address.Is6() {
			return prefix.Addr()
		}
		return address
	}, nil
}

// PeerAddress returns the address of the peer, which is invalid if the request has none.
func PeerAddress(r *http.Request) netip.Addr {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}
	return parseAddress(host)
}

// parseAddress reads an address without a zone. An IPv4 address mapped to IPv6 is the
// IPv4 address.
func parseAddress(text string) netip.Addr {
	address, err := netip.ParseAddr(strings.TrimSpace(text))
	if err != nil {
		return netip.Addr{}
	}
	return address.Unmap().WithZone("")
}

// forwardedFor returns the addresses of all X-Forwarded-For headers, as one list.
func forwardedFor(r *http.Request) []string {
	return strings.Split(strings.Join(r.Header[HeaderForwardedFor], ","), ",")
}

func atDepth(list []string, depth int) netip.Addr {
	if depth > len(list) {
		return netip.Addr{}
	}
	return parseAddress(list[len(list)-depth])
}

// notIn returns the rightmost address that is in none of the prefixes. A text that is no
// address ends the search: what is left of it is not trustworthy.
func notIn(list []string, excluded []netip.Prefix) netip.Addr {
	for _, text := range slices.Backward(list) {
		if strings.TrimSpace(text) == "" {
			continue
		}
		address := parseAddress(text)
		if !Contains(excluded, address) {
			return address
		}
	}
	return netip.Addr{}
}

// ParsePrefixes reads prefixes and single addresses.
func ParsePrefixes(list []string) ([]netip.Prefix, error) {
	var prefixes []netip.Prefix
	for _, text := range list {
		text = strings.TrimSpace(text)
		if address := parseAddress(text); address.IsValid() {
			prefixes = append(prefixes, netip.PrefixFrom(address, address.BitLen()))
			continue
		}
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("read prefix %q: want an address or ADDRESS/LENGTH", text)
		}
		if prefix.Addr().Is4In6() && prefix.Bits() >= 96 {
			prefix = netip.PrefixFrom(prefix.Addr().Unmap(), prefix.Bits()-96)
		}
		prefixes = append(prefixes, prefix.Masked())
	}
	return prefixes, nil
}

// Contains reports whether one of the prefixes has the address.
func Contains(prefixes []netip.Prefix, address netip.Addr) bool {
	return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(address) })
}
