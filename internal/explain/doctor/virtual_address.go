package doctor

import (
	"fmt"
	"slices"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/escape"
)

// conflictRecent is for how long an answer of another host is a finding.
const conflictRecent = time.Hour

// virtualAddress reports virtual addresses of the cluster that no node holds, that another host answers for, or
// that this host cannot take.
func virtualAddress(h Host) []Finding {
	c := h.Cluster
	if c == nil || c.Problem != "" || c.Frozen != "" || c.Etcd.Frozen != "" || !c.Etcd.Connected {
		return nil // the check of the cluster reports that, and the records may be old
	}
	var all []Finding
	for _, v := range c.Addresses {
		if v.Announce != "" || v.Removed {
			continue
		}
		at := v.Address.Addr()
		if !v.Answers && v.Lease == 0 {
			all = append(all, Finding{Severity: Problem, Seen: "no node answers for the virtual address " + at.String(),
				Why: "clients cannot reach it", Fix: "fairlead cluster status shows which candidates are alive, and their " +
					"problems; if the holder is down for good: fairlead cluster address claim " + at.String() + " --force"})
		}
		if v.Conflict != nil && h.Now.Sub(v.Conflict.At) < conflictRecent {
			all = append(all, Finding{Severity: Problem,
				Seen: fmt.Sprintf("at %s, %s answered for %s, which this host holds",
					v.Conflict.At.UTC().Format(time.RFC3339), v.Conflict.MAC, at),
				Why: "clients reach that host or this one, by chance",
				Fix: fmt.Sprintf("find that host (ip neigh | grep -i %s) and delete the address on it",
					escape.Shell(v.Conflict.MAC))})
		}
		if v.Barred != "" && expected(*c, v) {
			all = append(all, Finding{Severity: Warning, Seen: fmt.Sprintf("this host cannot take the virtual address %s: %s",
				at, v.Barred), Why: "if its holder fails, one candidate less can replace it",
				Fix: "correct that, or add the address again without this host: fairlead cluster address add --candidate"})
		}
	}
	return all
}

// expected reports whether this host should be able to take an address: it is a candidate and not drained.
func expected(c api.ClusterStatus, v api.ClusterAddress) bool {
	drained := slices.ContainsFunc(c.Nodes, func(n api.ClusterNodeStatus) bool { return n.Name == c.Node && n.Drained })
	return !drained && (len(v.Candidates) == 0 || slices.Contains(v.Candidates, c.Node))
}
