package doctor

import (
	"fmt"
	"strconv"

	"fairlead/internal/explain/facts"
)

// Fill levels of the connection tracking table that are reported, in percent.
const (
	fullSoon   = 75
	fullAlmost = 90
)

// conntrack reports a connection tracking table that is almost full.
func conntrack(h Host) []Finding {
	count, err := strconv.Atoi(h.Settings[facts.ConntrackCount])
	most, errMax := strconv.Atoi(h.Settings[facts.ConntrackMax])
	if err != nil || errMax != nil || most == 0 || count*100 < most*fullSoon {
		return nil
	}
	f := Finding{Severity: Warning,
		Seen: fmt.Sprintf("the connection tracking table has %d of at most %d entries (%d %%)", count, most,
			count*100/most),
		Why:  "when the table is full, the kernel drops the first packet of every new connection that it should track: connections time out for no visible reason",
		Cost: &conntrackCost,
		Fix:  fmt.Sprintf("sysctl -w %s=%d", facts.ConntrackMax, max(2*most, 2*count)),
	}
	if count*100 >= most*fullAlmost {
		f.Severity = Problem
	}
	return []Finding{f}
}
