package doctor

import (
	"fmt"
	"maps"
	"slices"

	"fairlead/internal/explain/ports"
	"fairlead/internal/kernel/rules"
)

// private are the ports of services that are meant for the host or its
// containers, and often require no password.
var private = map[uint16]string{
	2375: "the Docker API without TLS", 2379: "etcd", 3306: "MySQL", 5432: "PostgreSQL", 5984: "CouchDB", 6379: "Redis",
	8500: "Consul",
	9042: "Cassandra", 9200: "Elasticsearch", 10250: "the kubelet", 11211: "memcached", 27017: "MongoDB",
}

// docker is the port of the Docker API without TLS: its clients become root.
const docker = 2375

// exposed reports private ports that the LAN reaches.
func exposed(h Host) []Finding {
	var all []Finding
	for _, p := range h.Ports {
		if !slices.ContainsFunc(p.Reaches(), func(r ports.Reach) bool {
			return r.LAN == rules.Yes &&
				r.Firewall != ports.Lets
		}) {
			continue
		}
		for _, port := range slices.Sorted(maps.Keys(private)) {
			if port < p.Ports.First || port > p.Ports.Last || (p.Proto == "udp" && port != 11211) {
				continue
			}
			f := Finding{Severity: Warning,
				Seen: fmt.Sprintf("port %s (%s) is open to the LAN, and no firewall protects it", name(p),
					private[port]),
				Why: "such services are meant for the host and its containers only; any machine of the LAN can try to use them",
				Fix: bind(p)}
			if port == docker {
				f.Severity, f.Why = Problem, "any client that reaches this port can become root on this host"
			}
			all = append(all, f)
		}
	}
	return all
}

// bind returns the fix that closes the port to the LAN.
func bind(p ports.Port) string {
	if p.To.IsValid() {
		return fmt.Sprintf("publish it on 127.0.0.1 only (-p 127.0.0.1:%s:%s)", p.Ports, p.ToPorts)
	}
	return fmt.Sprintf("let it listen on 127.0.0.1 only; or until then: nft 'add table inet closed; "+
		"add chain inet closed in { type filter hook input priority 0; }; add rule inet closed in iifname != lo %s dport %s drop'", p.Proto, p.Ports)
}
