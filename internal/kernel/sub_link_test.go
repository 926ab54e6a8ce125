package kernel

import (
	"strings"
	"testing"

	"fairlead/internal/kernel/netns"
	"fairlead/internal/plan"
)

// withParents returns a host with the Ethernet links eth0 and eth1, and the path
// of a sandbox.
func withParents(t *testing.T) (h *Host, sandbox string) {
	t.Helper()
	h = openTestHost(t)
	for _, name := range []string{"eth0", "eth1"} {
		h.run(t, "ip", "link", "add", name, "type", "veth", "peer", "name", "far-"+name)
		h.run(t, "ip", "link", "set", "far-"+name, "up")
		h.run(t, "ip", "link", "set", name, "up")
	}
	box, err := netns.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { box.Close() })
	return h, box.Path()
}

func TestSubLinkIsSetReadAndRemoved(t *testing.T) {
	h, box := withParents(t)
	inside := plan.SubLink{Netns: box, Name: "eth0", Kind: plan.Macvlan, Mode: "bridge", Parent: "eth0", MTU: 1400,
		MAC: "02:f1:0a:00:00:02", Owner: "web"}
	shim := plan.SubLink{Name: "fm-net", Kind: plan.Macvlan, Mode: "bridge", Parent: "eth0", MTU: 1400,
		MAC: "02:f1:0a:00:00:01", Owner: "net", Quiet: true}
	other := shim
	other.Name, other.Parent, other.Mode = "fm-other", "eth1", "private"
	all := plan.Plan{inside, shim, other}
	for range 2 {
		for _, o := range all {
			if err := h.Set(o); err != nil {
				t.Fatal(err)
			}
			if got, err := h.read(o); err != nil || got != o {
				t.Errorf("set %+v, read %+v, %v", o, got, err)
			}
		}
	}
	for command, want := range map[string]plan.SubLink{
		"ip link set fm-net mtu 1300":                        {MTU: 1300},
		"ip link set fm-net address 02:f1:0a:00:00:07":       {MAC: "02:f1:0a:00:00:07"},
		"sysctl -qw net.ipv4.conf.fm-net.arp_filter=0":       {},
		"sysctl -qw net.ipv6.conf.fm-net.accept_ra=1":        {},
		"ip link set fm-net alias fairlead:elsewhere":        {Owner: "elsewhere"},
		"ip link set fm-net down":                            {Name: "none"},
		"ip link set fm-net type macvlan mode vepa":          {Name: "none"},
		"ip link del fm-net":                                 {Name: "none"},
		"ip link set eth0 down; ip link set eth0 name old; ": {Name: "none"},
	} {
		h.run(t, "sh", "-c", command)
		h.Release()
		got, err := h.read(shim)
		if have, ok := got.(plan.SubLink); err != nil || got == shim || ok == (want.Name == "none") ||
			want.MTU != 0 && have.MTU != want.MTU || want.MAC != "" && have.MAC != want.MAC || want.Owner != "" &&
			have.Owner != want.Owner {
			t.Errorf("after %q it reads %+v, %v", command, got, err)
		}
		if strings.Contains(command, "name old") {
			h.run(t, "sh", "-c", "ip link set old name eth0; ip link set eth0 up")
		}
		if err := h.Set(shim); err != nil {
			t.Errorf("after %q: %v", command, err)
		}
		if got, err := h.read(shim); err != nil || got != shim {
			t.Errorf("after %q it is repaired to %+v, %v", command, got, err)
		}
	}
	for _, o := range []plan.Object{inside, shim, shim} {
		if err := h.Del(o); err != nil {
			t.Errorf("remove: %v", err)
		}
		if got, err := h.read(o); err != nil || got != nil {
			t.Errorf("it still exists: %+v %v", got, err)
		}
	}
}

// TestLeftoverSubLinkIsFoundAndRemoved leaves a sub-link that no plan wants.
func TestLeftoverSubLinkIsFoundAndRemoved(t *testing.T) {
	h, _ := withParents(t)
	shim := plan.SubLink{Name: "fm-net", Kind: plan.Macvlan, Mode: "bridge", Parent: "eth0", MTU: 1500, Owner: "net",
		Quiet: true}
	if err := h.Set(shim); err != nil {
		t.Fatal(err)
	}
	found, err := h.Observe(nil, nil)
	if err != nil || len(found) != 1 || found[0].Key() != shim.Key() {
		t.Fatalf("observed %v, %v", found, err)
	}
	if err := h.Del(found[0]); err != nil {
		t.Fatal(err)
	}
	if found, err := h.Observe(nil, nil); err != nil || len(found) != 0 {
		t.Errorf("it still exists: %v %v", found, err)
	}
}

// TestRefusedSubLinkSaysWhy requests sub-links that the kernel refuses.
func TestRefusedSubLinkSaysWhy(t *testing.T) {
	h, box := withParents(t)
	h.run(t, "ip", "link", "add", "br0", "type", "bridge")
	h.run(t, "ip", "link", "set", "eth1", "master", "br0")
	macvlan := plan.SubLink{Netns: box, Name: "eth0", Kind: plan.Macvlan, Mode: "bridge", Parent: "eth0", MTU: 1500,
		Owner: "web"}
	with := func(change func(*plan.SubLink)) plan.SubLink { b := macvlan; change(&b); return b }
	if err := h.Set(with(func(b *plan.SubLink) { b.Name = "first" })); err != nil {
		t.Fatal(err)
	}
	for want, b := range map[string]plan.SubLink{
		"find parent eth7":                           with(func(b *plan.SubLink) { b.Parent = "eth7" }),
		"does not accept a macvlan of mode passthru": with(func(b *plan.SubLink) { b.Mode = "passthru" }),
		"a port of a bridge":                         with(func(b *plan.SubLink) { b.Parent = "eth1" }),
		"the sandbox has an interface lo already":    with(func(b *plan.SubLink) { b.Name = "lo" }),
		"a link of that name exists and is not": with(func(b *plan.SubLink) {
			b.Netns, b.Name = "", "far-eth0"
		}),
		"no such file or directory":                          with(func(b *plan.SubLink) { b.Netns = "/run/netns/nonesuch" }),
		"does not accept a macvlan of mode bridge (invalid ": with(func(b *plan.SubLink) { b.Parent = "lo" }),
	} {
		if err := h.Set(b); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want an error with %q, got %v", want, err)
		}
		if got, err := h.read(b); err != nil || got != nil {
			t.Errorf("%s left %v, %v", want, got, err)
		}
	}
}

// TestSubLinkWaitsForItsAddress gives a sub-link the hardware address of another
// one, which is deleted meanwhile.
func TestSubLinkWaitsForItsAddress(t *testing.T) {
	h, box := withParents(t)
	h.run(t, "ip", "link", "add", "link", "eth0", "name", "old", "address", "02:f1:0a:00:00:02", "type", "macvlan",
		"mode", "bridge")
	h.run(t, "ip", "link", "set", "old", "up")
	b := plan.SubLink{Netns: box, Name: "eth0", Kind: plan.Macvlan, Mode: "bridge", Parent: "eth0", MTU: 1500,
		MAC: "02:f1:0a:00:00:02", Owner: "web"}
	if err := h.Set(b); err == nil || !strings.Contains(err.Error(),
		"hardware address 02:f1:0a:00:00:02 is in use on eth0") {
		t.Errorf("while the address is in use: %v", err)
	}
	set := make(chan error)
	go func() { set <- h.Set(b) }()
	h.run(t, "ip", "link", "del", "old")
	if err := <-set; err != nil {
		t.Error(err)
	}
	if got, err := h.read(b); err != nil || got != b {
		t.Errorf("read %+v, %v", got, err)
	}
}
