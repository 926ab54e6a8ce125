package engine_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"fairlead/internal/kernel"
	"fairlead/internal/model"
	"fairlead/test/place"
)

// TestNFTFlowsAreCounted checks the counts of begun and of active flows.
func TestNFTFlowsAreCounted(t *testing.T) {
	w := world(t)
	s := dual(t, w, model.DriverBridge, "web")
	balanced(t, w, &s, model.PlaneNFT)
	mustSet(t, w, s)
	serve(t, in(w, "web"), "web", ":80")
	for range 3 { // all open at once, so that each uses a different port
		dial(t, w.DoClient, model.UDP, atVIPs(8080)[0]).hears("web")
	}
	open := dial(t, w.DoClient, model.TCP, atVIPs(8080)[1])
	open.hears("web")
	h, err := kernel.Open(fmt.Sprintf("/proc/self/fd/%d", w.Server().Netns.Fd()), kernel.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	counts, err := h.NFT().NFTCounts()
	if err != nil || len(counts) != 4 {
		t.Fatalf("got counts %v, %v", counts, err)
	}
	for _, c := range counts {
		want := map[string]uint64{"198.51.100.80:8080/udp": 3, "[2001:db8:1::80]:8080/tcp": 1}[c.Frontend.String()]
		if c.Real.Port() != 80 || c.Begun != want || c.Active != want {
			t.Errorf("%+v; want %d flows", c, want)
		}
	}
	// Conntrack remembers a connection that has ended for two minutes more.
	open.conn.Close()
	for end := time.Now().Add(place.Timeout); activeTCP(t, h) > 0; {
		if time.Now().After(end) {
			t.Fatal("an ended connection is still counted as active")
		}
	}
}

// activeTCP returns the number of active TCP connections.
func activeTCP(t *testing.T, h *kernel.Host) (n uint64) {
	t.Helper()
	counts, err := h.NFT().NFTCounts()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range counts {
		if c.Proto == model.TCP {
			n += c.Active
		}
	}
	return n
}

// TestFlowsOfDownRealServerAreReset marks real servers as down, with each
// scheduler of data plane nft. Their flows are reset, also when no real server
// is left and when the service no longer has the port. Flows of the other real
// server continue.
func TestFlowsOfDownRealServerAreReset(t *testing.T) {
	w := world(t)
	s := dual(t, w, model.DriverBridge, "a", "b")
	full := mustSet(t, w, s)
	serve(t, in(w, "a"), "a", ":80")
	serve(t, in(w, "b"), "b", ":80")
	v := model.VirtualService{Name: "web", Addresses: vips[:1], Interface: "wire0",
		Ports: []model.PortRange{model.Port(8080)}, Proto: model.TCP, Plane: model.PlaneNFT}
	for _, name := range []string{"a", "b"} {
		ep, _ := full.Endpoint(name)
		addr, _ := ep.Address(true)
		v.Reals = append(v.Reals, model.RealServer{Address: addr, Port: 80, Weight: 1, Endpoint: name})
	}
	set := func(v model.VirtualService) {
		t.Helper()
		s.Services = []model.VirtualService{v}
		mustSet(t, w, s)
		undrifted(t, w)
	}
	for _, scheduler := range []model.Scheduler{model.RoundRobin, model.WeightedRoundRobin, model.MaglevHashing} {
		v.Scheduler = scheduler
		set(v)
		talks := map[string]talk{}
		for range 40 {
			c := dial(t, w.DoClient, model.TCP, atVIPs(8080)[0])
			name, err := c.ask()
			if err != nil {
				t.Fatal(err)
			}
			talks[name] = c
		}
		one := v.Clone()
		one.Reals[0].State = model.RealDown
		set(one)
		talks["a"].isRefused()
		talks["b"].hears("b")
		none := one.Clone()
		none.Reals[1].State = model.RealDown
		set(none)
		talks["b"].isRefused()
		isClosed(t, w.DoClient, model.TCP, atVIPs(8080)[0])
		set(v)
		c := dial(t, w.DoClient, model.TCP, atVIPs(8080)[0])
		if _, err := c.ask(); err != nil {
			t.Fatal(err)
		}
		moved := v.Clone()
		moved.Ports = []model.PortRange{model.Port(8090)}
		set(moved)
		c.isRefused()
	}
}

// TestLimitAppliesBehindService checks that auto does not choose the data plane
// that would bypass an endpoint's limit, and that naming it is an error.
func TestLimitAppliesBehindService(t *testing.T) {
	w := world(t)
	s := dual(t, w, model.DriverBridge, "web")
	s = mustSet(t, w, s)
	web := netip.AddrPortFrom(endpointAddr(s, "web"), 9)
	s.Services = []model.VirtualService{{Name: "web", Addresses: vips[:1], Interface: "wire0",
		Ports: []model.PortRange{model.Port(9)}, Proto: model.UDP,
		Reals: []model.RealServer{{Address: web.Addr(), Port: 9, Weight: 1, Endpoint: "web"}}}}
	const burst = 800
	for _, c := range []struct {
		limit uint64
		plane model.Plane
	}{{0, model.PlaneEBPF}, {1_000_000, model.PlaneNFT}} {
		s.Endpoints[0].Limit = model.Limit{In: c.limit}
		if plane := mustSet(t, w, s).Services[0].Plane; plane != c.plane {
			t.Errorf("with a limit of %d bit/s, the data plane is %s", c.limit, plane)
		}
		arrive := floodBy(t, w.DoClient, in(w, "web"), web, netip.AddrPortFrom(vips[0], 9), burst)
		if bounded := arrive < burst; bounded != (c.limit > 0) {
			t.Errorf("with a limit of %d bit/s, %d of %d datagrams arrive", c.limit, arrive, burst)
		}
	}
	s.Services[0].Plane = model.PlaneEBPF
	if _, err := w.Engine.Set(t.Context(), s); err == nil ||
		!strings.Contains(err.Error(), "the limit on what web receives") {
		t.Errorf("with data plane ebpf: %v", err)
	}
}
