package doctor

import (
	"fmt"
	"strconv"

	"fairlead/internal/explain/facts"
)

// Shares of the table of connections that are too much, in percent.
const (
	fullSoon   = 75
	fullAlmost = 90
)

// conntrack reports a table of connections that has little room left.
func conntrack(h Host) []Finding {
	count, err := strconv.Atoi(h.Settings[facts.ConntrackCount])
	most, errMax := strconv.Atoi(h.Settings[facts.ConntrackMax])
	if err != nil || errMax != nil || most == 0 || count*100 < most*fullSoon {
		return nil
	}
	f := Finding{Severity: Warning,
		Seen: fmt.Sprintf("%d of %d connections are tracked (%d %%)", count, most, count*100/most),
		Why:  "when the table is full the kernel drops the first packet of every new connection that is tracked: time-outs for no visible reason",
		Cost: &conntrackCost,
		Fix:  fmt.Sprintf("sysctl -w %s=%d", facts.ConntrackMax, max(2*most, 2*count)),
	}
	if count*100 >= most*fullAlmost {
		f.Severity = Problem
	}
	return []Finding{f}
}
