package cluster_test

import (
	"slices"
	"strings"
	"testing"

	"fairlead/internal/api"
	"fairlead/internal/kernel/kerneltest"
)

// found returns the view of host3's real server on a host, and what it knows of the other nodes, e.g.
// "host2=up".
func (s *site) found(h *host) (r api.RealView, nodes []string) {
	s.Helper()
	v, err := h.Client.Service(s.Context(), "web")
	if err != nil {
		s.Fatal(err)
	}
	for _, real := range v.Servers {
		if real.Address == s.boxes[2].addr {
			r = real
		}
	}
	for _, n := range r.Nodes {
		state := string(n.State)
		if n.Problem != "" {
			state = "unknown"
		}
		nodes = append(nodes, n.Node+"="+state)
	}
	return r, nodes
}

// TestAgreement drops the packets from host1 to host3's real server. Only host1 leaves it out, and the nodes
// show what each of them finds. Then host3 is cut off, and the others agree.
func TestAgreement(t *testing.T) {
	s := newSite(t, "vxlan")
	one, two, three := s.hosts[0], s.hosts[1], s.hosts[2]
	one.Run("service", "add", "web", vip+":8080", "--cluster", "--real", "network=shop", "--check", "tcp",
		"--interval", "200ms", "--fall", "2", "--rise", "1")
	for _, h := range s.hosts {
		s.via(h)
		s.answered(8080, s.everyone(one, two, three)...)
	}

	kerneltest.Run(t, three.ns, "nft", "table netdev t { chain c { type filter hook ingress device eth0 priority 0; "+
		"ip saddr 192.0.2.1 udp dport 4789 drop; }; }")
	s.via(one)
	s.answered(8080, s.everyone(one, two)...)
	s.via(two)
	s.answered(8080, s.everyone(one, two, three)...)
	s.until("host1 knows that the others find it up", func() bool {
		r, nodes := s.found(one)
		return r.State == api.RealDown && !r.Removed && slices.Equal(nodes, []string{"host2=up", "host3=up"})
	})
	s.until("host2 knows that host1 finds it down", func() bool {
		r, nodes := s.found(two)
		return r.State == api.RealUp && slices.Contains(nodes, "host1=down")
	})
	if said := two.Run("service", "show", "web"); !strings.Contains(said, "down on host1") {
		t.Errorf("`service show` prints\n%s", said)
	}
	s.until("an event", func() bool { return strings.Contains(one.Run("events"), "up elsewhere") })

	kerneltest.Run(t, s.between, "ip", "link", "set", "port3", "down")
	for _, h := range []*host{one, two} {
		s.until(h.name+" knows that all agree", func() bool { r, _ := s.found(h); return r.Removed })
		s.until("an event", func() bool { return strings.Contains(h.Run("events"), "removed") })
	}
	kerneltest.Run(t, s.between, "ip", "link", "set", "port3", "up")
	kerneltest.Run(t, three.ns, "nft", "delete", "table", "netdev", "t")
	for _, h := range []*host{one, two} {
		s.via(h)
		s.answered(8080, s.everyone(one, two, three)...)
		s.until(h.name+" finds no difference", func() bool { _, nodes := s.found(h); return nodes == nil })
	}
}
