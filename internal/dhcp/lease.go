package dhcp

import (
	"fmt"
	"net"
	"net/netip"
	"time"

	"fairlead/internal/model"

	"github.com/insomniacslk/dhcp/dhcpv4"
)

// forever is an infinite lease time (RFC 2131, section 3.3).
const forever = time.Duration(1<<32-1) * time.Second

// leastMTU is the least MTU that an option may name (RFC 2132, section 5.1).
const leastMTU = 68

// parse parses a server's acknowledgement of a request that was sent at the time
// asked.
func parse(ack *dhcpv4.DHCPv4, asked time.Time) (Lease, error) {
	var l Lease
	addr, ok := ip(ack.YourIPAddr)
	if !ok || !addr.Is4() || addr.IsUnspecified() || addr.IsLoopback() || addr.IsMulticast() {
		return l, fmt.Errorf("the server's answer has no valid host address: %v", ack.YourIPAddr)
	}
	mask := ack.SubnetMask()
	if mask == nil {
		mask = ack.YourIPAddr.DefaultMask() // of the address's class
	}
	bits, _ := mask.Size() // 0 if it is not a valid mask
	if bits == 0 {
		return l, fmt.Errorf("the server's answer has no valid subnet mask: %v", mask)
	}
	l.Prefixes = []netip.Prefix{netip.PrefixFrom(addr, bits)}
	l.Server, _ = ip(ack.ServerIdentifier())
	for _, a := range ack.DNS() {
		if dns, ok := ip(a); ok {
			l.DNS = append(l.DNS, dns)
		}
	}
	if mtu, err := dhcpv4.GetUint16(dhcpv4.OptionInterfaceMTU, ack.Options); err == nil && mtu >= leastMTU {
		l.MTU = int(mtu)
	}
	l.route(ack)
	l.time(ack, asked)
	return l, nil
}

// route sets the routes. If there are classless routes, the option for the default
// gateway must be ignored (RFC 3442).
func (l *Lease) route(ack *dhcpv4.DHCPv4) {
	routes := ack.ClasslessStaticRoute()
	if len(routes) == 0 {
		for _, r := range ack.Router() {
			if gateway, ok := ip(r); ok && len(l.Gateways) == 0 {
				l.Gateways = append(l.Gateways, gateway)
			}
		}
		return
	}
	for _, r := range routes {
		to, ok := ip(r.Dest.IP)
		if !ok {
			continue
		}
		bits, _ := r.Dest.Mask.Size()
		route := model.Route{To: netip.PrefixFrom(to, bits).Masked()}
		if via, ok := ip(r.Router); ok && !via.IsUnspecified() {
			route.Via = via
		}
		if bits == 0 && route.Via.IsValid() {
			if len(l.Gateways) == 0 {
				l.Gateways = append(l.Gateways, route.Via)
			}
			continue
		}
		l.Routes = append(l.Routes, route)
	}
}

// time sets the times of the lease. If the server sends no valid renewal and
// rebinding times, they are the shares of the lease time from RFC 2131.
func (l *Lease) time(ack *dhcpv4.DHCPv4, asked time.Time) {
	lasts := ack.IPAddressLeaseTime(forever)
	if lasts >= forever {
		return
	}
	renew, rebind := ack.IPAddressRenewalTime(lasts/2), ack.IPAddressRebindingTime(lasts/8*7)
	if rebind <= 0 || rebind >= lasts {
		rebind = lasts / 8 * 7
	}
	if renew <= 0 || renew >= rebind {
		renew = rebind / 7 * 4
	}
	l.Renew, l.Rebind, l.Expires = asked.Add(renew), asked.Add(rebind), asked.Add(lasts)
}

func ip(a net.IP) (netip.Addr, bool) {
	addr, ok := netip.AddrFromSlice(a)
	return addr.Unmap(), ok
}
