package doctor

import (
	"fmt"
	"strings"
)

// neighbourTable reports a neighbour table that is almost full, or that has been full.
func neighbourTable(h Host) []Finding {
	var all []Finding
	for _, t := range h.Neighbours {
		almost := t.Limit > 0 && t.Entries*100 >= t.Limit*fullSoon
		if !almost && t.Overflows == 0 {
			continue
		}
		kind := "IPv4 (ARP)"
		if strings.HasPrefix(t.Setting, "net.ipv6") {
			kind = "IPv6"
		}
		f := Finding{Severity: Warning,
			Seen: fmt.Sprintf("the neighbour table of %s has %d of at most %d entries, and was full %d times since the boot",
				kind, t.Entries, t.Limit, t.Overflows),
			Why: "all sandboxes share the table; when it is full, a packet to a neighbour without an entry is lost, also within a network and an overlay",
			Fix: fmt.Sprintf("sysctl -w %s=%d", t.Setting, max(4*t.Limit, 4*t.Entries))}
		if almost {
			f.Severity = Problem
		}
		all = append(all, f)
	}
	return all
}
