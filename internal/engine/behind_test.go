package engine_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"fairlead/internal/lab/topology"
	"fairlead/internal/model"
	"fairlead/test/place"

	"golang.org/x/sys/unix"
)

// behind returns services at the virtual addresses that another host balances.
func behind() (all []model.VirtualService) {
	for i, vip := range vips {
		all = append(all, model.VirtualService{Name: fmt.Sprintf("site-%d", i), Addresses: []netip.Addr{vip},
			Ports: []model.PortRange{model.Port(8080)},
			Proto: model.TCP, Forward: model.ForwardLocal})
	}
	return all
}

// TestBehindAnotherHost checks that the host accepts packets for the virtual
// addresses that arrive on its link, only at the services' ports. The host
// answers no neighbour discovery (ARP, NDP) for these addresses.
func TestBehindAnotherHost(t *testing.T) {
	w := world(t)
	serve(t, w.DoServer, "host", ":8080")
	serve(t, w.DoServer, "other", ":9999")
	onServer(t, w, "sysctl -qw net.ipv4.conf.all.arp_announce=2") // set by the administrator
	before := snapshot(t, w)
	settings := func() string {
		return strings.Join(strings.Fields(onServer(t, w,
			"sysctl -n net.ipv4.conf.all.arp_ignore net.ipv4.conf.all.arp_announce")), " ")
	}
	mustSet(t, w, model.State{Services: behind()})
	undrifted(t, w)
	if is := settings(); is != "1 2" {
		t.Errorf("arp_ignore and arp_announce are %s", is)
	}
	sh(t, w.DoClient, "for f in /proc/sys/net/ipv[46]/neigh/*/retrans_time_ms; do echo 20 > $f; done")
	for _, at := range atVIPs(8080) {
		if _, err := place.Dial(w.DoClient, "tcp", at, place.Timeout); !errors.Is(err, unix.EHOSTUNREACH) {
			t.Errorf("%s: %v; want no answer from any neighbour", at, err)
		}
	}

	sendDirect(t, w)
	for i, at := range atVIPs(8080) {
		hears(t, w.DoClient, model.TCP, at, "host")
		isClosed(t, w.DoClient, model.TCP, atVIPs(9999)[i])
	}
	onServer(t, w, "sysctl -qw net.ipv4.conf.all.arp_ignore=0; ip addr del 198.51.100.80/32 dev lo")
	if ops, err := w.Engine.Heal(context.Background()); err != nil || len(ops) != 2 {
		t.Errorf("%v, %v", ops, err)
	}
	undrifted(t, w)
	if err := w.Engine.TearDown(context.Background()); err != nil {
		t.Fatal(err)
	}
	if is := settings(); is != "0 2" {
		t.Errorf("after TearDown, arp_ignore and arp_announce are %s", is)
	}
	unchanged(t, w, before)
}

// sendDirect makes the client send packets for the virtual addresses to the
// server's link, as an IPVS director does.
func sendDirect(t testing.TB, w *topology.World) {
	t.Helper()
	link := onServer(t, w, "ip -br link show dev $(ip -o addr show to "+topology.ServerAddr4.String()+
		" | awk '{print $2}') | awk '{print $3}'")
	sh(t, w.DoClient,
		fmt.Sprintf("for at in %s %s; do ip neigh replace $at lladdr %s dev $(ip -o route get %s | sed 's/.* dev \\([^ ]*\\).*/\\1/'); done",
			vips[0], vips[1], strings.TrimSpace(link), topology.ServerAddr4))
}

// TestPublishedBehindAnotherHost publishes the services' port from a sandbox.
func TestPublishedBehindAnotherHost(t *testing.T) {
	w := world(t)
	s := dual(t, w, model.DriverBridge, "web")
	s.Services = behind()
	sendDirect(t, w)
	serve(t, in(w, "web"), "web", ":80")
	serve(t, w.DoServer, "other", ":9999")
	for _, via := range []model.Via{model.ViaNAT, model.ViaEBPF, model.ViaProxy} {
		s.Publishes = nil
		publish(&s, "web", via, model.TCP, 8080, 80)
		mustSet(t, w, s)
		undrifted(t, w)
		for i, at := range atVIPs(8080) {
			hears(t, w.DoClient, model.TCP, at, "web")
			isClosed(t, w.DoClient, model.TCP, atVIPs(9999)[i])
		}
	}
}
