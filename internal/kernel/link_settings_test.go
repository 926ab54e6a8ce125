package kernel

import (
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"fairlead/internal/kernel/kerneltest"
	"fairlead/internal/kernel/netns"
	"fairlead/internal/plan"
	"fairlead/test/place"
)

// sh runs a shell script in a namespace and returns its output.
func sh(t *testing.T, in *netns.Namespace, script string) string {
	t.Helper()
	out, err := try(in, script)
	if err != nil {
		t.Fatalf("%s: %v: %s", script, err, out)
	}
	return out
}

func try(in *netns.Namespace, script string) (string, error) {
	var out []byte
	err := in.Do(func() (err error) {
		out, err = exec.Command("sh", "-c", script).CombinedOutput()
		return err
	})
	return string(out), err
}

// await waits until a script succeeds in a namespace.
func await(t *testing.T, in *netns.Namespace, what, script string) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		out, err := try(in, script)
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("timeout: %s: %s", what, out)
		}
	}
}

// advertised returns the routes and addresses that a namespace has from router
// advertisements.
func advertised(t *testing.T, ns *netns.Namespace) string {
	t.Helper()
	var found []string
	for _, line := range strings.Split(sh(t, ns, "ip -6 route show; ip -6 -o addr show"), "\n") {
		if strings.Contains(line, "proto ra") || strings.Contains(line, "2001:db8:bad:") {
			found = append(found, line)
		}
	}
	return strings.Join(found, "\n")
}

// TestRouterAdvertisementsAreIgnored sends router advertisements from a sandbox to
// the host and to a neighbour, over a bridge and over a link without a bridge. With
// the kernel's default settings each of them has an effect.
func TestRouterAdvertisementsAreIgnored(t *testing.T) {
	h := openTestHost(t)
	boxes := map[string]*netns.Namespace{}
	for _, name := range []string{"evil", "web", "alone"} {
		boxes[name] = kerneltest.Netns(t)
	}
	port := func(name string, master string, mode plan.IPv6) plan.Link {
		return plan.Link{Name: "fv-" + name, Kind: plan.Veth, MTU: 1500, Owner: name, Master: master,
			IPv6: mode, Peer: "eth0", PeerNetns: boxes[name].Path(), PeerIPv6: plan.IPv6Fixed}
	}
	links := plan.Plan{plan.Link{Name: "fl-net", Kind: plan.Bridge, MTU: 1500, Owner: "net", IPv6: plan.IPv6Fixed},
		port("evil", "fl-net", plan.IPv6Off), port("web", "fl-net", plan.IPv6Off), port("alone", "", plan.IPv6Fixed)}
	for _, o := range links {
		if err := h.Set(o); err != nil {
			t.Fatal(err)
		}
	}
	victims := map[string]struct {
		from, ns *netns.Namespace
		link     string
	}{
		"the host at a bridge":                {boxes["evil"], h.ns, "fl-net"},
		"a neighbour":                         {boxes["evil"], boxes["web"], "eth0"},
		"the host at a link without a bridge": {boxes["alone"], h.ns, "fv-alone"},
	}
	for name, v := range victims {
		sh(t, v.from, "ip addr replace fe80::bad/64 dev eth0 nodad")
		await(t, v.from, "eth0 carries traffic", "ip -6 route get ff02::1 dev eth0")
		for range 3 {
			place.Advertise(t, v.from.Do, "eth0")
		}
		await(t, v.ns, name+" receives a router advertisement",
			"grep -E 'Icmp6InType134\\s+[1-9]' /proc/net/dev_snmp6/"+v.link)
		if got := advertised(t, v.ns); got != "" {
			t.Errorf("%s has accepted a router advertisement:\n%s", name, got)
		}
	}
	// Check that the same packet has an effect without the settings.
	for name, v := range victims {
		sh(t, v.ns, "sysctl -qw net.ipv6.conf."+v.link+".accept_ra=1 net.ipv6.conf."+v.link+".autoconf=1")
		deadline := time.Now().Add(20 * time.Second)
		for advertised(t, v.ns) == "" {
			if time.Now().After(deadline) {
				t.Fatalf("%s does not accept a router advertisement even with accept_ra=1", name)
			}
			place.Advertise(t, v.from.Do, "eth0")
		}
	}
	// The settings are altered now and must be repaired.
	for _, o := range links {
		h.Release()
		if got, err := h.read(o); err != nil || (got == o) != (o.Key() == links[1].Key()) {
			t.Errorf("after the settings were changed, %+v is read as %+v, %v", o, got, err)
		}
		if err := h.Set(o); err != nil {
			t.Error(err)
		}
		if got, err := h.read(o); err != nil || got != o {
			t.Errorf("set %+v, read %+v, %v", o, got, err)
		}
	}
}

// TestLinksWithoutIPv6HaveNoIPv6Address sets links of every kind for an IPv4-only
// network. None of them has an IPv6 address, not even a link-local one.
func TestLinksWithoutIPv6HaveNoIPv6Address(t *testing.T) {
	h := openTestHost(t)
	box := kerneltest.Netns(t)
	sh(t, h.ns, "ip link add eth0 type veth peer name far; ip link set eth0 up; ip link set far up")
	for _, o := range (plan.Plan{
		plan.Link{Name: "fl-net", Kind: plan.Bridge, MTU: 1500, Owner: "net"},
		plan.Link{Name: "fv-web", Kind: plan.Veth, MTU: 1500, Owner: "web", Master: "fl-net", Peer: "eth0",
			PeerNetns: box.Path()},
		plan.SubLink{Name: "fm-net", Kind: plan.Macvlan, Mode: "bridge", Parent: "eth0", MTU: 1500, Owner: "net"},
		plan.SubLink{Netns: box.Path(), Name: "eth1", Kind: plan.Macvlan, Mode: "bridge", Parent: "eth0", MTU: 1500,
			Owner: "web"},
		plan.Tunnel{Name: "fx-net", VNI: 7, Port: 4789, Local: netip.MustParseAddr("192.0.2.1"), MTU: 1450,
			MAC: "02:f1:00:00:00:01", Owner: "net", Master: "fl-net"},
	}) {
		if err := h.Set(o); err != nil {
			t.Fatal(err)
		}
	}
	for _, at := range []struct {
		ns   *netns.Namespace
		link string
	}{{h.ns, "fl-net"}, {h.ns, "fv-web"}, {h.ns, "fm-net"}, {h.ns, "fx-net"}, {box, "eth0"}, {box, "eth1"}} {
		if got := sh(t, at.ns, "ip -6 -o addr show dev "+at.link); got != "" {
			t.Errorf("%s has %s", at.link, got)
		}
	}
}
