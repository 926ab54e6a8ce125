package cluster_test

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fairlead/internal/cluster/record"
	"fairlead/internal/model"
)

// TestNoCommandOfTheCluster writes services to etcd whose checks are commands, as anyone who can write to etcd
// can. No host runs one of them, and each host shows the refused service. A valid service that the same client
// writes afterwards is served, so each host has read the refused ones before.
func TestNoCommandOfTheCluster(t *testing.T) {
	l := newLAN(t)
	l.joined()
	trace := filepath.Join(t.TempDir(), "trace")
	service := func(name, at string, check model.Check) {
		l.etcd.Members[0].Change("/fairlead/v1/default/"+record.Key(record.Services, name), func([]byte) []byte {
			return record.Encode(record.Service{Spec: model.VirtualService{Name: name,
				Addresses: []netip.Addr{netip.MustParseAddr(at)}, Ports: []model.PortRange{model.Port(80)},
				Proto: model.TCP, Plane: model.PlaneEBPF, Forward: model.ForwardDirect, Check: check,
				Reals: []model.RealServer{{Address: netip.MustParseAddr("192.0.2.50"), Weight: 1}}}})
		})
	}
	service("evil", "198.51.100.10", model.Check{Type: model.CheckExec,
		Command: []string{"/bin/sh", "-c", "touch " + trace, "check"}})
	service("good", "198.51.100.11", model.Check{})
	for _, h := range l.hosts {
		l.until(h.name+" serves good", func() bool {
			list, _ := h.Try("service", "ls")
			return strings.Contains(list, "good")
		})
		if list := h.Run("service", "ls"); strings.Contains(list, "evil") {
			t.Errorf("%s has the service:\n%s", h.name, list)
		}
		l.until(h.name+" shows the problem", func() bool {
			text, _ := h.Try("cluster", "status")
			return strings.Contains(text, "service evil: read record svcs/evil: check exec")
		})
	}
	l.refused(l.hosts[1], "check exec: hosts run no commands for a cluster", "service", "add", "evil2",
		"198.51.100.12:80", "--cluster", "--real", "192.0.2.50", "--check", "exec", "--check-command", "/bin/touch",
		"--check-command", trace)
	if _, err := os.Stat(trace); err == nil {
		t.Error("a host has run the command of a record")
	}
}
