package daemon_test

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"fairlead/internal/api"
	"fairlead/internal/driver"
	"fairlead/internal/model"
)

// take does what a container engine does with the link of an external endpoint.
func (w *world) take(b watchedSandbox, e model.Endpoint, in driver.SandboxConfig) {
	w.Helper()
	w.sh(fmt.Sprintf("ip link set %s netns %s", e.HostInterface, b.pid))
	lines := []string{fmt.Sprintf("ip link set %s name eth5", e.HostInterface)}
	for _, a := range e.Addresses {
		bits := map[bool]int{true: 16, false: 64}[a.Is4()]
		lines = append(lines, fmt.Sprintf("ip addr add %s/%d dev eth5 %s", a, bits,
			map[bool]string{true: "", false: "nodad"}[a.Is4()]))
	}
	lines = append(lines, "ip link set eth5 up")
	for _, r := range in.Routes {
		if !r.Via.IsValid() {
			lines = append(lines, fmt.Sprintf("ip route add %s dev eth5", r.To))
		}
	}
	for _, r := range in.Routes {
		if r.Via.IsValid() {
			lines = append(lines, fmt.Sprintf("ip route add %s via %s", r.To, r.Via))
		}
	}
	for _, g := range in.Gateways {
		lines = append(lines, fmt.Sprintf("ip %s route add default via %s",
			map[bool]string{true: "-4", false: "-6"}[g.Is4()], g))
	}
	b.sh(w, strings.Join(lines, "\n"))
}

// externals are networks in which an engine's sandboxes can be.
func externals() map[string]model.Network {
	dual := []model.Subnet{{Prefix: prefix("172.30.0.0/16")}, {Prefix: prefix("fd00:30::/64")}}
	return map[string]model.Network{
		"bridge": {Driver: model.DriverBridge, Subnets: dual},
		"routed": {Driver: model.DriverRouted, Subnets: dual},
		"macvlan": {Driver: model.DriverMacvlan, Parent: "up0",
			Subnets: []model.Subnet{{Prefix: prefix("172.30.0.0/16")}}},
	}
}

func TestExternalEndpoint(t *testing.T) {
	for name, n := range externals() {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.sh("ip link add up0 type veth peer name up1; ip link set up0 up; ip link set up1 up; ip addr add 172.30.0.9/16 dev up0 noprefixroute")
			w.start()
			before := w.snapshot()
			n.Name, n.Origin, n.AllowOverlap = "lan", model.FromDocker, true // up0 has its subnet
			w.network(n)
			a, b := w.watchedSandbox(), w.watchedSandbox()
			first := w.externalEndpoint(a, n, 2)
			second := w.externalEndpoint(b, n, 3)
			if _, err := w.Publish(context.Background(), api.PublishRequest{Target: "ext2", Publishes: []model.Publish{
				{Via: model.ViaNAT, Proto: model.TCP, HostPorts: model.Port(8080),
					Ports: model.Port(80)}}}); err != nil {
				t.Fatal(err)
			}
			a.serves(t, ":80")
			reached := func() {
				t.Helper()
				for _, addr := range first.Addresses {
					b.reaches(t, netip.AddrPortFrom(addr, 80).String())
				}
				w.reaches("127.0.0.1:8080")
				w.reaches(netip.AddrPortFrom(first.Addresses[0], 80).String())
			}
			reached()
			links := w.links()
			w.stop()
			w.start()
			reached()
			if now := w.links(); now != links {
				t.Errorf("the next daemon has changed links:\n%s\n%s", links, now)
			}
			b.kill()
			for _, e := range []model.Endpoint{first, second} {
				if err := w.Leave(e.Name); err != nil {
					t.Fatal(err)
				}
				if out := w.sh("ip -o link"); strings.Contains(out, e.HostInterface) {
					t.Errorf("%s is left on the host", e.HostInterface)
				}
			}
			if out := a.sh(t, "ip -o link"); strings.Contains(out, "eth5") {
				t.Errorf("the sandbox still has %s", out)
			}
			for _, e := range []model.Endpoint{first, second, second} {
				if _, err := w.Detach(context.Background(), api.DetachRequest{Name: e.Name}); err != nil {
					t.Fatal(err)
				}
			}
			if all := w.Attachments(); len(all) != 0 {
				t.Errorf("left: %+v", all)
			}
			w.removeNetwork(n.Name)
			w.unchanged(before)
		})
	}
}

// removeNetwork removes a network.
func (w *world) removeNetwork(network string) {
	w.Helper()
	if _, err := w.RemoveNetwork(network); err != nil {
		w.Fatal(err)
	}
}

// externalEndpoint reserves and joins an external endpoint, and moves its link into
// the sandbox.
func (w *world) externalEndpoint(b watchedSandbox, n model.Network, number int) model.Endpoint {
	w.Helper()
	a := model.Attachment{Origin: model.FromDocker, Ref: "docker:" + fmt.Sprint(number), Endpoint: model.Endpoint{
		Name: fmt.Sprintf("ext%d", number), Network: n.Name, HostInterface: fmt.Sprintf("fd-ext%d", number)}}
	for _, s := range n.Subnets {
		addr := s.Prefix.Addr().AsSlice()
		addr[len(addr)-1] = byte(number)
		ip, _ := netip.AddrFromSlice(addr)
		a.Addresses = append(a.Addresses, ip)
	}
	reserved, err := w.Reserve(a)
	if err != nil {
		w.Fatal(err)
	}
	e, in, err := w.Join(a.Name, "/proc/"+b.pid+"/ns/net")
	if err != nil {
		w.Fatal(err)
	}
	if reserved.MAC == "" || reserved.MAC != in.MAC {
		w.Errorf("reserved with the hardware address %q, joined with %q", reserved.MAC, in.MAC)
	}
	w.take(b, e, in)
	return e
}

// reaches fails the test unless the host can connect to the address.
func (w *world) reaches(addr string) {
	w.Helper()
	if err := w.host.Do(func() error { return dial(addr) }); err != nil {
		w.Error(err)
	}
}

// TestExternalEndpointBeforeSandbox joins an endpoint before its sandbox exists.
func TestExternalEndpointBeforeSandbox(t *testing.T) {
	w := newWorld(t).start()
	before := w.snapshot()
	n := lan
	n.Origin = model.FromDocker
	w.network(n)
	a := model.Attachment{Origin: model.FromDocker, Ref: "docker:x", Endpoint: model.Endpoint{
		Name: "x", Network: "lan", HostInterface: "fd-x", Addresses: addrs("172.30.0.2", "fd00:30::2")}}
	for range 2 {
		if _, err := w.Reserve(a); err != nil {
			t.Fatal(err)
		}
		if _, _, err := w.Join("x", "/nowhere/x"); err != nil {
			t.Fatal(err)
		}
	}
	w.sh("ip link show fd-x")
	w.stop()
	w.start()
	w.sh("ip link show fd-x")
	if _, err := w.Detach(context.Background(), api.DetachRequest{Name: "x"}); err != nil {
		t.Fatal(err)
	}
	w.removeNetwork("lan")
	w.unchanged(before)
	if _, _, err := w.Join("x", "/nowhere/x"); api.CodeOf(err) != api.NotFound {
		t.Errorf("join without a reservation: %v", err)
	}
}
