package peer

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"fairlead/internal/child"
	"fairlead/internal/lab/program"
	"fairlead/internal/lab/result"
	"fairlead/internal/lab/rig"
	"fairlead/internal/lab/suite"
	"fairlead/internal/lab/topology"
	"fairlead/internal/model"
	"fairlead/internal/plan"
	"fairlead/internal/proxy"
	"fairlead/test/features"
)

func TestMain(m *testing.M) {
	child.Dispatch(child.Roles{proxy.Role: proxy.Main})
	os.Exit(m.Run())
}

// TestAttachedLinksHaveTheWiresMTU: in every path that attaches a sandbox the link has
// the wire's MTU, and the traffic passes the links whose counters prove this. The MTU
// of a tap device is set by its program.
func TestAttachedLinksHaveTheWiresMTU(t *testing.T) {
	facts := features.Facts(t)
	s, _ := suite.Find("attach")
	for _, name := range append(s.Paths, "host-mtu9000", "bridge-mtu9000", "hand-dnat-mtu9000",
		"cni-bridge-mtu9000", "routed-mtu9000", "cluster:overlay",
		"hop-veth-mtu9000", "cni-ptp-mtu9000", "macvlan-mtu9000", "cni-macvlan-mtu9000", "vxlan-mtu9000",
		"vxlan-2-mtu9000",
		"hand-vxlan-mtu65520", "vxlan-mtu65520", "device-mtu9000", "pasta-mtu9000", "slirp4netns-mtu9000") {
		p, ok := suite.FindPath(name)
		if !ok {
			t.Fatalf("unknown path %s", name)
		}
		if why := Unavailable(p, facts, ""); why != "" {
			t.Logf("%s: %s", name, why)
			continue
		}
		t.Run(name, func(t *testing.T) {
			r := attached(t, p, facts)
			if got := sandboxMTU(t, r); got != wantMTU(p) {
				t.Errorf("the sandbox has MTU %d, want %d", got, wantMTU(p))
			}
			sendAndProve(t, r)
		})
	}
}

// attached returns a rig whose path is built, without generators.
func attached(t *testing.T, p suite.Path, facts plan.Facts) *rig.Rig {
	t.Helper()
	r := &rig.Rig{Path: p, Maker: Maker(p)}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	var err error
	if r.World, err = topology.New(facts, r.Options()); err == nil {
		err = r.Start(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func wantMTU(p suite.Path) int {
	switch {
	case p.Driver == model.DriverNone:
		return 65520
	case p.Driver == model.DriverVXLAN:
		return p.MTU - 50
	}
	return p.MTU
}

// sandboxMTU returns the MTU of the workload's link; for a workload on the host,
// of the wire.
func sandboxMTU(t *testing.T, r *rig.Rig) int {
	t.Helper()
	link := "eth0"
	if r.Path.Driver == model.DriverHost {
		link = topology.Wire
	}
	out, err := program.Shell(inWorkload(r), "ip -o link show "+link)
	if err != nil {
		t.Fatal(err)
	}
	_, mtu, _ := strings.Cut(out, " mtu ")
	n, err := strconv.Atoi(strings.Fields(mtu)[0])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// sendAndProve sends a megabyte to the workload and checks the counters of the
// proof's links.
func sendAndProve(t *testing.T, r *rig.Rig) {
	t.Helper()
	const size = 1 << 20
	counters := func() rig.Counters {
		n, err := r.Count(t.Context(), result.Remote)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := counters()
	if err := send(t.Context(), r, size); err != nil {
		t.Fatalf("send to %s: %v", r.Dial(result.Remote, rig.LoadPort), err)
	}
	links, w := r.Maker.Links(result.Remote),
		rig.Window{Client: result.Remote, Before: before, After: counters(), Received: size}
	if p := rig.LinkProof(links, w); !p.OK {
		t.Errorf("%s: %d, want %d", p.Counter, p.Got, p.Want)
	}
	if p := rig.LinkProof(links, rig.Window{Before: w.After, After: w.After, Received: size}); p.OK {
		t.Errorf("the proof accepts bytes that were not sent: %+v", p)
	}
	if p := rig.WireProof(w); r.Path.Wires > 1 && !p.OK {
		t.Errorf("%s: %d, want %d; before and after %+v", p.Counter, p.Got, p.Want, w)
	}
}

// send sends bytes from the client to a listener at the workload's address.
func send(ctx context.Context, r *rig.Rig, size int64) error {
	var listen net.ListenConfig
	var server net.Listener
	err := inWorkload(r)(func() (err error) {
		server, err = listen.Listen(ctx, "tcp4", netip.AddrPortFrom(netip.IPv4Unspecified(), rig.LoadPort).String())
		return err
	})
	if err != nil {
		return err
	}
	defer server.Close()
	if err := server.(*net.TCPListener).SetDeadline(time.Now().Add(proofPatience)); err != nil {
		return err
	}
	received := make(chan error, 1)
	go func() {
		conn, err := server.Accept()
		if err == nil {
			_, err = io.CopyN(io.Discard, conn, size)
			conn.Close()
		}
		received <- err
	}()
	err = r.World.DoClient(func() error {
		conn, err := net.DialTCP("tcp4", nil, net.TCPAddrFromAddrPort(r.Dial(result.Remote, rig.LoadPort)))
		if err != nil {
			return err
		}
		defer conn.Close()
		_, err = conn.Write(make([]byte, size))
		return err
	})
	if err != nil {
		return err
	}
	return <-received
}

// inWorkload runs fn in the workload's network namespace.
func inWorkload(r *rig.Rig) func(fn func() error) error {
	if r.Path.Driver == model.DriverHost {
		return r.World.DoServer
	}
	return func(fn func() error) error { return r.World.DoSandbox(rig.Workload, fn) }
}

// TestCNIPluginsDelete: DEL removes what the plugins created, before the sandbox is
// removed.
func TestCNIPluginsDelete(t *testing.T) {
	facts := features.Facts(t)
	p, _ := suite.FindPath("cni-bridge")
	r := attached(t, p, facts)
	ports := func() bool {
		out, err := program.Shell(r.World.DoServer, "nft list ruleset")
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(out, fmt.Sprintf("dnat to %s:%d", r.Addresses().Workload, rig.LoadPort))
	}
	if !ports() {
		t.Fatal("portmap has not published the port")
	}
	if err := r.Remove(); err != nil {
		t.Error(err)
	}
	if ports() {
		t.Error("portmap still publishes the port")
	}
	if out, err := program.Shell(inWorkload(r), "ip -o link"); err != nil || strings.Contains(out, "eth0") {
		t.Errorf("the sandbox still has its link, %v: %s", err, out)
	}
}
