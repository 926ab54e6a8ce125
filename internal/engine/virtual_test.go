package engine_test

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"fairlead/internal/lab/topology"
	"fairlead/internal/model"
	"fairlead/test/place"
)

// vips are on the wire of the topology, next to the server's own addresses.
var vips = []netip.Addr{netip.MustParseAddr("198.51.100.80"), netip.MustParseAddr("2001:db8:1::80")}

// balanced adds services at the virtual addresses, on the server's link to the
// client. Their real server is sandbox web.
func balanced(t testing.TB, w *topology.World, s *model.State, plane model.Plane) {
	t.Helper()
	full := mustSet(t, w, *s)
	link := strings.TrimSpace(onServer(t, w, "ip -o addr show to "+topology.ServerAddr4.String()+" | awk '{print $2}'"))
	web, _ := full.Endpoint("web")
	for i, vip := range vips {
		real, _ := web.Address(vip.Is4())
		for _, proto := range protos {
			s.Services = append(s.Services, model.VirtualService{Name: fmt.Sprintf("%s-%d", proto, i),
				Addresses: []netip.Addr{vip}, Interface: link,
				Ports: []model.PortRange{model.Port(8080)}, Proto: proto, Plane: plane,
				Reals: []model.RealServer{{Address: real, Port: 80, Weight: 1, Endpoint: "web"}}})
		}
	}
}

func atVIPs(port int) []string { return both(vips[0].String(), vips[1].String(), port) }

var planes = []model.Plane{model.PlaneNFT, model.PlaneEBPF}

// TestVirtualAddressOnInterface checks that clients reach the service at the
// virtual address, and no other port of the host there.
func TestVirtualAddressOnInterface(t *testing.T) {
	for _, plane := range planes {
		t.Run(string(plane), func(t *testing.T) {
			w := world(t)
			serve(t, w.DoServer, "host", ":9999")
			before := snapshot(t, w)
			s := dual(t, w, model.DriverBridge, "web")
			balanced(t, w, &s, plane)
			mustSet(t, w, s)
			undrifted(t, w)
			serve(t, in(w, "web"), "web", ":80")
			for _, proto := range protos {
				for i, at := range atVIPs(8080) {
					hears(t, w.DoClient, proto, at, "web")
					hears(t, w.DoServer, proto, at, "web")
					isClosed(t, w.DoClient, proto, atVIPs(9999)[i])
					hears(t, w.DoClient, proto, server(9999)[i], "host")
				}
			}
			for _, vip := range vips {
				echoes(t, w.DoClient, vip)
			}
			for _, damage := range []string{
				"ip addr del 198.51.100.80/32 dev " + s.Services[0].Interface,
				"ip addr del 2001:db8:1::80/128 dev " + s.Services[0].Interface,
				"nft flush chain inet fairlead-addresses input",
				"nft add element inet fairlead-addresses frontends4 '{ 198.51.100.80 . tcp . 9999 }'",
				"nft delete table inet fairlead-addresses",
			} {
				onServer(t, w, damage)
				if ops, err := w.Engine.Heal(context.Background()); err != nil || len(ops) == 0 {
					t.Errorf("after %s: %v, %v", damage, ops, err)
				}
				undrifted(t, w)
			}
			isClosed(t, w.DoClient, model.TCP, atVIPs(9999)[0])
			if err := w.Engine.TearDown(context.Background()); err != nil {
				t.Fatal(err)
			}
			unchanged(t, w, before)
		})
	}
}

// echoes fails the test unless the address answers an echo request.
func echoes(t testing.TB, from place.Place, to netip.Addr) {
	t.Helper()
	network, request := "ip6:ipv6-icmp", []byte{128, 0, 0, 0, 0, 1, 0, 1} // the kernel adds the checksum
	if to.Is4() {
		network, request = "ip4:icmp", []byte{8, 0, 0xf7, 0xfd, 0, 1, 0, 1}
	}
	var conn net.Conn
	if err := from(func() (err error) { conn, err = net.Dial(network, to.String()); return err }); err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	err := conn.SetDeadline(time.Now().Add(place.Timeout))
	if err == nil {
		_, err = conn.Write(request)
	}
	if err == nil {
		_, err = conn.Read(make([]byte, 64))
	}
	if err != nil {
		t.Errorf("%s gives no echo: %v", to, err)
	}
}

// TestVirtualAddressIsAdopted uses a virtual address that the host already has.
// The address and the host's other ports there stay unchanged.
func TestVirtualAddressIsAdopted(t *testing.T) {
	w := world(t)
	s := dual(t, w, model.DriverBridge, "web")
	balanced(t, w, &s, model.PlaneNFT)
	onServer(t, w, "ip addr add 198.51.100.80/25 dev "+s.Services[0].Interface)
	serve(t, in(w, "web"), "web", ":80")
	serve(t, w.DoServer, "host", ":9999")
	mustSet(t, w, s)
	undrifted(t, w)
	hears(t, w.DoClient, model.TCP, atVIPs(8080)[0], "web")
	hears(t, w.DoClient, model.TCP, atVIPs(9999)[0], "host")
	isClosed(t, w.DoClient, model.TCP, atVIPs(9999)[1])
	s.Services = nil
	mustSet(t, w, s)
	if is := onServer(t, w, "ip -o addr show to 198.51.100.80"); !strings.Contains(is, "198.51.100.80/25") {
		t.Errorf("the address that the host had before is gone: %s", is)
	}
	if is := onServer(t, w, "ip -o addr show to 2001:db8:1::80"); is != "" {
		t.Errorf("the virtual address was not removed: %s", is)
	}
}

// TestVirtualAddressIsTaken checks that the error names the owner of a port or
// address that is in use, and that nothing changes.
func TestVirtualAddressIsTaken(t *testing.T) {
	w := world(t)
	s := dual(t, w, model.DriverBridge, "web")
	plain := s
	balanced(t, w, &s, model.PlaneNFT)
	serve(t, w.DoServer, "host", ":8080")
	refused := func(want string) {
		t.Helper()
		if _, err := w.Engine.Set(context.Background(), s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
	}
	refused("8080")
	s.Services[0].Ports = []model.PortRange{model.Port(8081)}
	full := mustSet(t, w, plain)
	web, _ := full.Endpoint("web")
	s.Services = s.Services[:1]
	s.Services[0].Addresses, s.Services[0].Reals = web.Addresses[:1], nil
	refused("endpoint web")
	other := s.Services[0].Clone()
	s.Services[0].Addresses = vips[:1]
	other.Name, other.Addresses, other.Interface, other.Ports = "other", vips[:1], "lo",
		[]model.PortRange{model.Port(8082)}
	s.Services = append(s.Services, other)
	refused("for service tcp-0")
	if is := onServer(t, w, "ip -o addr show to 198.51.100.80"); is != "" {
		t.Errorf("the virtual address exists: %s", is)
	}
}
