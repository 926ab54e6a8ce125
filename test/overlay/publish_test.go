package overlay_test

import (
	"errors"
	"net/netip"
	"testing"

	"fairlead/internal/model"
	"fairlead/test/fabric"
	"fairlead/test/place"

	"golang.org/x/sys/unix"
)

// TestPublishedPortsFromOtherHosts publishes a port of a sandbox on host 1 with each publish mode,
// and connects from host 2 and its sandboxes.
func TestPublishedPortsFromOtherHosts(t *testing.T) {
	f := fabric.New(t, fabric.Options{Hosts: 2})
	n := network(f, true)
	addrs := everywhere(t, f, n)
	know(&n, addrs)
	everywhere(t, f, n)
	h, other := f.Hosts[0], f.Hosts[1]
	s := state(h, n, "box1")
	modes := []model.Via{model.ViaProxy, model.ViaNAT, model.ViaEBPF}
	for i, via := range modes {
		s.Publishes = append(s.Publishes, model.Publish{Endpoint: "box1", Via: via, Proto: model.TCP,
			HostPorts: model.Port(8080 + uint16(i)), Ports: model.Port(port)})
	}
	set(t, h, s)
	serve(t, h.In("box1"), "box1")
	for i, via := range modes {
		at := func(a netip.Addr) netip.AddrPort { return netip.AddrPortFrom(a, 8080+uint16(i)) }
		for _, v4 := range families {
			hearsAt(t, other.In("box2"), at(h.Address(0, v4)), "box1")
			hearsAt(t, other.Do, at(h.Address(0, v4)), "box1")
		}
		// The host's own addresses in the network.
		for _, own := range n.Overlay.Peers[0].Own(n) {
			if via != model.ViaEBPF {
				hearsAt(t, other.In("box2"), at(own), "box1")
				continue
			}
			// The documentation mentions this limit of ebpf.
			if conn, err := dialAt(other.In("box2"), at(own), place.Timeout); !errors.Is(err, unix.ECONNREFUSED) {
				t.Errorf("%s is reachable from another host: %v, %v", at(own), conn, err)
			}
		}
	}
	undrifted(t, f)
}
