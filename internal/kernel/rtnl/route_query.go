package rtnl

import (
	"errors"
	"fmt"
	"net/netip"

	"fairlead/internal/kernel/nlutil"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// RouteQuery describes a packet to find the route for.
type RouteQuery struct {
	To netip.Addr
	// From is its source; if zero, the kernel chooses it.
	From netip.Addr
	// In is the link that it came in on; empty for packets that the host sends.
	In string
	// Out is the link that the packet must leave by; empty for any.
	Out  string
	Mark uint32
}

// RouteFound is the kernel's answer.
type RouteFound struct {
	// Type is RTN_LOCAL, RTN_UNICAST, RTN_BROADCAST …
	Type int
	// To is the destination of the matching route, e.g. 0.0.0.0/0; zero if the
	// kernel does not report it.
	To   netip.Prefix
	Via  netip.Addr
	Link string
	// Src is the source address that the host uses.
	Src   netip.Addr
	Table int
	// NextHops is the number of next hops of the matching route, of which Via and Link
	// are one.
	NextHops int
}

// ErrNoRoute is the reason why the kernel does not forward or deliver a packet.
type ErrNoRoute struct {
	Why   string
	cause error
}

// Error implements error.
func (e *ErrNoRoute) Error() string { return e.Why }

// Unwrap returns the kernel's error; nil for a route of type unreachable,
// prohibit or blackhole.
func (e *ErrNoRoute) Unwrap() error { return e.cause }

// noRoutes explains the kernel's errors (fib_props in fib_semantics.c, and
// __fib_validate_source).
var noRoutes = map[unix.Errno]string{
	unix.ENETUNREACH:  "no route to the destination",
	unix.EHOSTUNREACH: "an unreachable route, or forwarding is off",
	unix.EACCES:       "a prohibit route",
	unix.EINVAL:       "a blackhole route, or an address that may not come from there (a martian)",
	unix.EXDEV:        "the source may not come in on that link (rp_filter)",
}

// RouteTo returns the route that the kernel uses for a packet (RTM_GETROUTE, `ip
// route get`). Returns *ErrNoRoute if the kernel would not forward or deliver it.
func (h *Reader) RouteTo(q RouteQuery) (RouteFound, error) {
	handle, err := h.handles.At("")
	if err != nil {
		return RouteFound{}, err
	}
	opt := &netlink.RouteGetOptions{Iif: q.In, Oif: q.Out, Mark: q.Mark}
	if q.From.IsValid() {
		opt.SrcAddr = q.From.AsSlice()
	}
	list, err := handle.RouteGetWithOptions(q.To.AsSlice(), opt)
	var number unix.Errno
	if errors.As(err, &number) && noRoutes[number] != "" {
		return RouteFound{}, &ErrNoRoute{noRoutes[number], err}
	}
	if err != nil || len(list) == 0 {
		return RouteFound{}, fmt.Errorf("find the route to %s: %w", q.To, err)
	}
	found := RouteFound{Type: list[0].Type, Table: list[0].Table}
	found.Via = nlutil.Addr(list[0].Gw)
	if via, ok := list[0].Via.(*netlink.Via); ok {
		found.Via = nlutil.Addr(via.Addr)
	}
	found.Src = nlutil.Addr(list[0].Src)
	if l, err := handle.LinkByIndex(list[0].LinkIndex); err == nil {
		found.Link = l.Attrs().Name
	}
	// For IPv6 the kernel returns a prohibited or missing route as a route of that
	// type, without an error.
	switch list[0].Type {
	case unix.RTN_UNREACHABLE, unix.RTN_PROHIBIT, unix.RTN_BLACKHOLE:
		return found, &ErrNoRoute{map[int]string{unix.RTN_UNREACHABLE: "no route to the destination",
			unix.RTN_PROHIBIT: "a prohibit route", unix.RTN_BLACKHOLE: "a blackhole route"}[list[0].Type], nil}
	}
	opt.FIBMatch = true
	if entry, err := handle.RouteGetWithOptions(q.To.AsSlice(), opt); err == nil && len(entry) > 0 {
		if entry[0].Dst != nil {
			found.To = nlutil.Prefix(entry[0].Dst.IP, entry[0].Dst.Mask)
		}
		found.Table, found.NextHops = entry[0].Table, len(entry[0].MultiPath)
	}
	return found, nil
}

// RouteGet returns the route that the kernel uses for a packet that the host sends,
// as the kernel reports it. RouteTo explains it.
func (h *Reader) RouteGet(to netip.Addr) ([]netlink.Route, error) {
	handle, err := h.handles.At("")
	if err != nil {
		return nil, err
	}
	return handle.RouteGet(to.AsSlice())
}
