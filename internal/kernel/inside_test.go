package kernel

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"testing"

	"fairlead/internal/kernel/inspect"
	"fairlead/internal/kernel/kerneltest"
	"fairlead/internal/kernel/sockdiag"
	"fairlead/internal/model"
	"fairlead/internal/plan"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// TestInspect inspects a sandbox with a bridge attachment and with a link that
// Fairlead has not created.
func TestInspect(t *testing.T) {
	h := openTestHost(t)
	box, far := kerneltest.Netns(t), kerneltest.Netns(t)
	path := fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), box.File().Fd())
	for _, o := range []plan.Object{
		plan.Link{Name: "fl-br", Kind: plan.Bridge, MTU: 1500, Owner: "lan"},
		plan.Link{Name: "fl-web", Kind: plan.Veth, MTU: 1400, Owner: "web", Master: "fl-br", Peer: "eth0",
			PeerNetns: path, PeerMAC: "02:f1:00:00:00:02", PeerIPv6: plan.IPv6Fixed},
		plan.Address{Netns: path, Link: "eth0", Prefix: netip.MustParsePrefix("172.30.0.2/24")},
		plan.Address{Netns: path, Link: "eth0", Prefix: netip.MustParsePrefix("fd00:30::2/64")},
		plan.Route{Netns: path, To: netip.MustParsePrefix("0.0.0.0/0"), Via: netip.MustParseAddr("172.30.0.1"),
			Link: "eth0"},
	} {
		if err := h.Set(o); err != nil {
			t.Fatal(err)
		}
	}
	inside := &Host{ns: box}
	inside.run(t, "ip", "link", "add", "far", "type", "veth", "peer", "name", "far", "netns",
		fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), far.File().Fd()))

	var open []interface{ Close() error }
	err := box.Do(func() error {
		tcp, err := net.Listen("tcp", "[::]:80")
		if err != nil {
			return err
		}
		udp, err := net.ListenPacket("udp4", "172.30.0.2:53")
		if err != nil {
			return err
		}
		client, err := net.Dial("udp4", "172.30.0.9:9")
		if err != nil {
			return err
		}
		open = append(open, tcp, udp, client)
		_, err = client.Write([]byte("who has that address?"))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	got, err := h.Inspect().Inside(path)
	for _, o := range open {
		o.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	comm, err := os.ReadFile("/proc/self/comm")
	if err != nil {
		t.Fatal(err)
	}
	us := sockdiag.Owner{PID: os.Getpid(), Command: string(comm[:len(comm)-1])}
	want := inspect.Inside{
		Links: []inspect.InsideLink{
			{Name: "lo", Kind: "loopback", Up: true, MTU: 65536,
				Addresses: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/8"), netip.MustParsePrefix("::1/128")}},
			{Name: "eth0", Kind: "veth", Up: true, MTU: 1400, MAC: "02:f1:00:00:00:02", Peer: "fl-web", Bridge: "fl-br",
				Owner: "web", LinkLocal: true,
				Addresses: []netip.Prefix{netip.MustParsePrefix("172.30.0.2/24"),
					netip.MustParsePrefix("fd00:30::2/64")}},
			{Name: "far", Kind: "veth", MTU: 1500},
		},
		Routes: []inspect.InsideRoute{
			{To: netip.MustParsePrefix("0.0.0.0/0"), Via: netip.MustParseAddr("172.30.0.1"), Link: "eth0"},
			{To: netip.MustParsePrefix("172.30.0.0/24"), Link: "eth0", Src: netip.MustParseAddr("172.30.0.2")},
			{To: netip.MustParsePrefix("fd00:30::/64"), Link: "eth0"},
		},
		Listeners: []sockdiag.Listener{
			{Proto: model.UDP, At: netip.MustParseAddrPort("172.30.0.2:53"), Process: us},
			{Proto: model.TCP, At: netip.MustParseAddrPort("[::]:80"), Process: us},
		},
	}
	options := cmp.Options{cmpopts.EquateComparable(netip.Prefix{}, netip.Addr{}, netip.AddrPort{}),
		cmpopts.IgnoreFields(inspect.InsideLink{}, "RxBytes", "RxPackets", "TxBytes", "TxPackets"),
		cmpopts.IgnoreFields(inspect.InsideRoute{}, "Src"),
		cmpopts.IgnoreFields(sockdiag.Listener{}, "Inode", "Waiting", "Backlog", "CgroupID"),
		cmp.FilterPath(func(p cmp.Path) bool { return p.String() == "Links.MAC" },
			cmp.Comparer(func(a, b string) bool { return a == b || a == "" || b == "" }))}
	if diff := cmp.Diff(want, got, options); diff != "" {
		t.Errorf("Inspect differs (-want +got):\n%s", diff)
	}
	if eth0 := got.Links[1]; eth0.TxPackets == 0 || eth0.TxBytes == 0 {
		t.Errorf("eth0 has sent no neighbour request: %+v", eth0)
	}
}
