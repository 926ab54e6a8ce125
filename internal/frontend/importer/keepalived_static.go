package importer

import (
	"net/netip"
	"slices"
	"strings"
)

// fix reads the lines of static_ipaddress, which are as of `ip address add`:
// services at such an address put it on its link. Those of vrrp_instance move
// between hosts, and a service must not hold them where they are not.
func (i *Imported) fix(all []block) {
	for _, b := range all {
		host, bits, masked := strings.Cut(b.keyword(), "/")
		addr, err := netip.ParseAddr(host)
		at := slices.Index(b.words, "dev")
		for j := range i.Services {
			v := &i.Services[j]
			switch {
			case err != nil || v.Addresses[0] != addr:
			case at < 0 || at+1 >= len(b.words):
				i.left(b.line, "static_ipaddress %s: the link is not named: say interface for %s", b.keyword(), v.Name)
			default:
				v.Interface = b.words[at+1]
				if masked && bits != "32" && bits != "128" {
					i.left(b.line, "static_ipaddress %s: %s puts it on %s as the address of one host: the link needs another address of that network, if it has none", b.keyword(), v.Name, v.Interface)
				}
			}
		}
	}
}
