// Package localaddr finds out whether an address is one of the host's own. It does not list the
// addresses.
package localaddr

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Has reports whether the host has the address in the caller's network namespace: whether the
// route to it is of type local (rtnetlink(7)), as it is for each address of a link, and for all of
// 127.0.0.0/8. It needs no privileges, and may be called concurrently.
func Has(a netip.Addr) (bool, error) {
	routes, err := netlink.RouteGet(a.Unmap().AsSlice())
	switch {
	case errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.EHOSTUNREACH), errors.Is(err, unix.EACCES),
		errors.Is(err, unix.EINVAL):
		return false, nil // no route, or one that refuses the address
	case err != nil:
		return false, fmt.Errorf("find the route to %s: %w", a, err)
	}
	return len(routes) > 0 && routes[0].Type == unix.RTN_LOCAL, nil
}
