package importer

import (
	"net/netip"
	"slices"
	"strings"
)

// fix imports the lines of static_ipaddress, which have the arguments of `ip address
// add`. A service with such an address adds it to that link. The addresses of
// vrrp_instance are different: the cluster adds them to the host that holds them.
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
				i.report(b.line, "static_ipaddress %s: not imported: the link is not named: set interface of %s",
					b.keyword(), v.Name)
			default:
				v.Interface = b.words[at+1]
				if masked && bits != "32" && bits != "128" {
					i.report(b.line, "static_ipaddress %s: changed: %s adds it to %s without its prefix length: if "+
						"the link has no other address of that network, add one", b.keyword(), v.Name, v.Interface)
				}
			}
		}
	}
}
