package attack_test

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"fairlead/internal/model"
	"fairlead/internal/threat"
)

// firstServicePort is the first of the virtual services' ports in TestServicesDoNotLoop.
const firstServicePort = 1400

// servicePaths are the publish modes whose reflectors are the real servers of the data planes.
var servicePaths = map[model.Plane]model.Via{model.PlaneNFT: model.ViaNAT, model.PlaneEBPF: model.ViaEBPF}

// serviceAttackers are the attackers that share no Ethernet with the real servers.
var serviceAttackers = []threat.Attacker{threat.OtherNetwork, threat.LANHost, threat.OtherUplink}

// loopServices returns two virtual services for an attacker: their real servers are the reflectors
// of the victim and of the third sandbox.
func (w *world) loopServices(plane model.Plane, a threat.Attacker, v4 bool) (all []model.VirtualService) {
	c := threat.Cell{Attacker: a, Driver: model.DriverBridge}
	first := firstServicePort + 10*slices.Index(serviceAttackers, a)
	if plane == model.PlaneEBPF {
		first += 5
	}
	for i, box := range []string{victim(c.Driver), third(c.Driver)} {
		real := model.RealServer{Endpoint: box, Address: w.address(box, v4), Weight: 1,
			Port: loopPort(c, servicePaths[plane], box)}
		all = append(all, model.VirtualService{Name: fmt.Sprintf("loop-%d-%v", first+i, v4), Plane: plane,
			Addresses: []netip.Addr{w.own(v4)}, Ports: []model.PortRange{model.Port(uint16(first + i))},
			Proto: model.UDP, Reals: []model.RealServer{real}})
	}
	return all
}

// TestServicesDoNotLoop sends one datagram to a virtual service from the frontend of another one, and
// from the address and port of its real server: no exchange begins.
func TestServicesDoNotLoop(t *testing.T) {
	w := newWorld(t)
	s := w.state
	for plane := range servicePaths {
		for _, a := range serviceAttackers {
			for _, v4 := range []bool{true, false} {
				s.Services = append(s.Services, w.loopServices(plane, a, v4)...)
			}
		}
	}
	if _, err := w.host.Engine.Set(context.Background(), s); err != nil {
		t.Fatal(err)
	}
	for plane := range servicePaths {
		for _, a := range serviceAttackers {
			for _, v4 := range []bool{true, false} {
				if err := w.loopsServices(plane, a, v4); err != nil {
					t.Errorf("%s, %s: %v", plane, a, err)
				}
			}
		}
	}
}

// loopsServices returns an error if the attacker can start an exchange between its two services.
func (w *world) loopsServices(plane model.Plane, a threat.Attacker, v4 bool) error {
	both, attacker := w.loopServices(plane, a, v4), w.from(a, model.DriverBridge)
	to, other := both[0].Frontends()[0].At, both[1]
	for _, src := range []netip.AddrPort{other.Frontends()[0].At, other.Reals[0].At(0)} {
		text := nonce()
		if err := attacker.send(segment{proto: model.UDP, src: src, dst: to, payload: text}.packet()); err != nil {
			return err
		}
		// The answer proves that all earlier packets have arrived.
		if err := attacker.exchange(to, nonce()); err != nil {
			return fmt.Errorf("no answer to an honest datagram to %s: %w", to, err)
		}
		if w.reflector.loops(text) {
			return fmt.Errorf("a datagram from %s to %s comes back again and again", src, to)
		}
	}
	return nil
}
