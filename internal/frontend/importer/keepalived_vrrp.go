package importer

import (
	"net/netip"
	"slices"
	"strings"

	"fairlead/internal/api"
	"fairlead/internal/cluster/addresses"
)

// instance imports the addresses of a vrrp_instance: each becomes a virtual address of the cluster, which all
// nodes can hold. What VRRP needs to elect a holder has no equivalent, and is reported.
func (i *Imported) instance(b block) {
	var spec api.ClusterAddressSpec // what the addresses have in common
	var all []block
	var link *block
	for j, f := range b.body {
		switch f.keyword() {
		case "interface":
			spec.Link, link = f.word(0), &b.body[j]
		case "advert_int":
			i.advertised(f, &spec)
		case "virtual_ipaddress", "virtual_ipaddress_excluded":
			all = append(all, f.body...)
		default:
			i.report(f.line, "%s: not imported: %s", strings.TrimSpace(f.keyword()+" "+f.rest()),
				unneeded(f.keyword()))
		}
	}
	uses := false
	for _, f := range all {
		uses = i.virtualAddress(f, spec) || uses
	}
	if link != nil && !uses {
		i.report(link.line, "interface %s: not imported: no imported address is on it", link.rest())
	}
	if len(all) == 0 {
		i.report(b.line, "vrrp_instance %s: not imported: it has no virtual_ipaddress", b.rest())
	}
	b.rest()
	i.unread(b)
}

// advertised makes the hold time from the interval of advertisements: a VRRP backup takes over after three of
// them.
func (i *Imported) advertised(f block, spec *api.ClusterAddressSpec) {
	interval, ok := seconds(f.word(0))
	spec.Hold = 3 * interval
	if !ok || spec.Hold <= 0 {
		spec.Hold = 0
		i.report(f.line, "advert_int %s: want seconds: the default hold time is used", f.rest())
		return
	}
	if limited := min(max(spec.Hold, addresses.MinHold), addresses.MaxHold); limited != spec.Hold {
		spec.Hold = limited
		i.report(f.line, "advert_int %s: changed: the hold time is %s", f.rest(), limited)
	}
}

// virtualAddress imports ADDRESS[/LENGTH] [dev LINK] of virtual_ipaddress. It reports whether the address is on
// the instance's link.
func (i *Imported) virtualAddress(f block, spec api.ClusterAddressSpec) (onLink bool) {
	host, _, masked := strings.Cut(f.keyword(), "/")
	addr, err := netip.ParseAddr(host)
	spec.Address = netip.PrefixFrom(addr, addr.BitLen())
	if masked && err == nil {
		spec.Address, err = netip.ParsePrefix(f.keyword())
	}
	if err != nil {
		i.report(f.line, "virtual_ipaddress %s: not imported: want an address", strings.TrimSpace(f.keyword()+" "+f.rest()))
		return false
	}
	onLink = true
	for j := 0; f.word(j) != ""; j++ {
		option, value := f.word(j), f.word(j+1)
		switch option {
		case "dev":
			spec.Link, onLink = value, false
		case "brd", "scope", "label", "preferred_lft":
			i.report(f.line, "virtual_ipaddress %s: %s %s is not imported", f.keyword(), option, value)
		default:
			i.report(f.line, "virtual_ipaddress %s: %s is not imported", f.keyword(), option)
			continue
		}
		j++
	}
	switch err := addresses.Valid(spec); {
	case err != nil:
		i.report(f.line, "virtual_ipaddress %s: not imported: %v", f.keyword(), err)
		return false
	case slices.ContainsFunc(i.Addresses, func(o api.ClusterAddressSpec) bool {
		return o.Address.Addr() == spec.Address.Addr()
	}):
		i.report(f.line, "virtual_ipaddress %s: not imported: it is declared twice: the first one is used", f.keyword())
		return false
	}
	i.Addresses = append(i.Addresses, spec)
	return onLink
}

// protocol are statements about the packets of VRRP.
var protocol = []string{"virtual_router_id", "authentication", "mcast_src_ip", "version", "native_ipv6",
	"strict_mode", "check_unicast_src", "skip_check_adv_addr", "lower_prio_no_advert", "higher_prio_send_advert",
	"accept", "no_accept"}

// unneeded says why a statement of a vrrp_instance has no equivalent.
func unneeded(keyword string) string {
	switch {
	case keyword == "nopreempt":
		return "an address that has moved stays where it is anyway"
	case keyword == "state" || keyword == "priority" || strings.HasPrefix(keyword, "preempt"):
		return "the nodes share the addresses out, and nothing moves them back: use `fairlead cluster address move`"
	case strings.HasPrefix(keyword, "track_") || keyword == "dont_track_primary":
		return "a node watches the link of the address only: for other reasons, run `fairlead cluster drain NODE`"
	case strings.HasPrefix(keyword, "notify") || strings.HasPrefix(keyword, "smtp_alert"):
		return "no command is run and no mail is sent: use `fairlead events -f` to get the events"
	case strings.HasPrefix(keyword, "garp_") || strings.HasPrefix(keyword, "vrrp_garp"):
		return "the holder announces an address several times after it has moved, and then each minute"
	case keyword == "virtual_routes" || keyword == "virtual_rules":
		return "only addresses move"
	case strings.HasPrefix(keyword, "use_vmac") || keyword == "use_ipvlan":
		return "the address has the MAC address of the link"
	case keyword == "include":
		return "the file is not read: copy its content to this place"
	case slices.Contains(protocol, keyword) || strings.HasPrefix(keyword, "unicast_"):
		return "the nodes decide with records in etcd, and send no VRRP packets"
	}
	return "it has no equivalent"
}
