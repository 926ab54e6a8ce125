package doctor

import (
	"fmt"
	"strings"
	"time"
)

// renewalLate is the rest of the life of a node's certificate at which its renewal must have failed:
// it is valid for 24 hours and renewed after 8.
const renewalLate = 12 * time.Hour

// clusterNode reports what keeps this host from being a working node of its cluster.
func clusterNode(h Host) []Finding {
	c := h.Cluster
	if c == nil {
		return nil
	}
	var all []Finding
	add := func(s Severity, seen, why, fix string) {
		all = append(all, Finding{Severity: s, Seen: seen, Why: why, Fix: fix})
	}
	switch {
	case c.Problem != "":
		add(Problem, c.Problem, "this host does not follow the changes of cluster "+c.Name, "fairlead cluster status")
	case c.Frozen != "":
		add(Problem, "this host does not act as a node of its cluster: "+c.Frozen,
			"it holds no virtual address, leases no address, and publishes nothing; its containers keep their traffic",
			"fairlead cluster status")
	case c.Etcd.Frozen != "":
		add(Problem, "this host accepts no records of etcd: "+c.Etcd.Frozen,
			"changes of the cluster do not reach this host", "if etcd has the right records: fairlead cluster accept")
	case c.Etcd.Refused != "":
		add(Problem, withCause("etcd does not accept changes of this host", c.Etcd.Refused),
			"other hosts do not get what changes here, and this host cannot renew virtual addresses in etcd",
			"fairlead cluster status; other credentials: fairlead cluster etcd")
	case !c.Etcd.Connected:
		add(Problem, withCause("etcd does not answer", c.Etcd.Problem), "the configuration of the cluster is frozen; traffic continues",
			"fairlead cluster status shows each server of etcd")
	}
	if left := c.CertificateExpires.Sub(h.Now); c.Problem == "" && left < renewalLate {
		add(Warning, fmt.Sprintf("the certificate of this node is valid until %s, and was not renewed",
			c.CertificateExpires.UTC().Format(time.RFC3339)),
			"other nodes refuse this one when it has expired", "compare the host's clock with others; fairlead events")
	}
	for _, s := range c.Etcd.Servers {
		if len(s.Warnings) > 0 {
			add(Warning, fmt.Sprintf("etcd at %s (%s): %s", s.Endpoint, s.Version, strings.Join(s.Warnings, "; ")),
				"the cluster's records may be lost, or the store may stop",
				"install a newer etcd, or do what the alarm says")
		}
	}
	return all
}

// withCause adds the cause to what was seen, if it is known.
func withCause(seen, cause string) string {
	if cause == "" {
		return seen
	}
	return seen + ": " + cause
}
