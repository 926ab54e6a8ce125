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
	l.findsAllGood()
	kerneltest.Run(t, l.between, "ip", "link", "set", "port2", "mtu", "1400")
	lost := func(said, router string) bool {
		return strings.Contains(said, " are lost on the path to "+router+";") ||
			strings.Contains(said, " are lost on the path back from "+router+";")
	}
	const advice = ": a hop between the hosts carries 100 bytes less than their links do: raise its mtu, or set the " +
		"network's to 1350 on all hosts\n"
	for i, h := range l.hosts {
		said := ""
		t.Cleanup(func() {
			if t.Failed() {
				t.Logf("the last check on %s says\n%s", h.name, said)
			}
		})
		// A host that a busy machine pauses answers no packet in time: then all its paths are bad in one check.
		l.until(h.name+" finds exactly the paths bad that pass port2", func() bool {
			var err error
			said, err = h.Try("network", "check", "shop")
			for j, router := range routers {
				if bad := i != j && (i == 1 || j == 1); lost(said, router) != bad {
					return false
				}
			}
			return err != nil && strings.Contains(said, advice)
		})
	}
	kerneltest.Run(t, l.between, "ip", "link", "set", "port2", "mtu", "1500")
	l.findsAllGood()
}

// findsAllGood waits until each host finds all paths of the network good.
func (l *lan) findsAllGood() {
	l.Helper()
	for _, h := range l.hosts {
		l.until(h.name+" finds all paths good", func() bool {
			_, err := h.Try("network", "check", "shop")
			return err == nil
		})
	}
}
