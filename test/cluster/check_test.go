package cluster_test

import (
	"strings"
	"testing"

	"fairlead/internal/kernel/kerneltest"
)

// TestNetworkCheck checks the paths of an overlay with packets. A port of the switch between two hosts carries
// less than their links do, and drops larger frames: only packets can find that.
func TestNetworkCheck(t *testing.T) {
	l := newLAN(t)
	l.joined()
	l.hosts[0].Run("network", "create", "shop", "--cluster", "--driver", "vxlan", "--subnet", "10.9.0.0/16")
	var routers []string
	for _, h := range l.hosts {
		l.until(h.name+" has the network", h.has)
		routers = append(routers, l.box(h).router(l))
	}
	for _, h := range l.hosts {
		l.until(h.name+" finds all paths good", func() bool {
			_, err := h.Try("network", "check", "shop")
			return err == nil
		})
	}
	kerneltest.Run(t, l.between, "ip", "link", "set", "port2", "mtu", "1400")
	lost := func(said, router string) bool {
		return strings.Contains(said, " are lost on the path to "+router+";") ||
			strings.Contains(said, " are lost on the path back from "+router+";")
	}
	const advice = ": a hop between the hosts carries 100 bytes less than their links do: raise its mtu, or set the " +
		"network's to 1350 on all hosts\n"
	for i, h := range l.hosts {
		said, err := h.Try("network", "check", "shop")
		if err == nil || !strings.Contains(said, advice) {
			t.Errorf("network check on %s: %v, want %q in\n%s", h.name, err, advice, said)
		}
		for j, router := range routers {
			if want := i != j && (i == 1 || j == 1); lost(said, router) != want {
				t.Errorf("network check on %s: is the path to host%d bad? want %v:\n%s", h.name, j+1, want, said)
			}
		}
	}
	kerneltest.Run(t, l.between, "ip", "link", "set", "port2", "mtu", "1500")
	for _, h := range l.hosts {
		h.Run("network", "check", "shop")
	}
}
