package overlay_test

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"fairlead/internal/cluster/record"
	"fairlead/internal/model"
	"fairlead/test/fabric"
	"fairlead/test/place"
)

// dropped is a table that drops and counts the datagrams that the kernel's VXLAN link sends.
const dropped = "nft 'table inet cut { chain out { type filter hook output priority 0; udp dport 4789 counter drop; }; }'"

// programmed sets up a network of blocks whose frames pass no rules for bridges, with one sandbox on
// each of two hosts.
func programmed(t *testing.T) (f *fabric.Fabric, second netip.Addr) {
	t.Helper()
	f = fabric.New(t, fabric.Options{Hosts: 2})
	r := blocks(f, model.DriverVXLAN)
	for i, h := range f.Hosts {
		n := derived(t, r, i)
		n.Filter = model.FilterOff
		second = set(t, h, state(h, n, box(i))).Endpoints[0].Addresses[0]
	}
	return f, second
}

// TestProgramsSend sends data from one sandbox to another while the kernel of the first host cannot send
// tunnel datagrams itself. Only with an IPsec policy it must.
func TestProgramsSend(t *testing.T) {
	f, to := programmed(t)
	h := f.Hosts[0]
	serve(t, f.Hosts[1].In(box(1)), box(1))
	hears(t, h.In(box(0)), to, box(1)) // the neighbour's address is known now
	sh(t, h.Do, dropped)
	transfer(t, h.In(box(0)), to, 1<<20)

	sh(t, h.Do, "ip xfrm policy add src 203.0.113.1 dst 203.0.113.2 dir out action allow")
	if conn, err := dial(h.In(box(0)), to, time.Second); err == nil {
		conn.Close()
		t.Error("the datagrams of a host with IPsec policies bypass the kernel")
	}
	sh(t, h.Do, "ip xfrm policy flush")
	hears(t, h.In(box(0)), to, box(1))
	undrifted(t, f)
}

// TestProgramsReportMTU sends datagrams that do not fit the path. The sandbox must get the ICMP error.
func TestProgramsReportMTU(t *testing.T) {
	f, to := programmed(t)
	h := f.Hosts[0]
	serve(t, f.Hosts[1].In(box(1)), box(1))
	hears(t, h.In(box(0)), to, box(1))
	for _, link := range []string{"fl-net", "fx-net", "fv-" + box(0)} {
		sh(t, h.Do, "ip link set "+link+" mtu 1500")
	}
	sh(t, h.In(box(0)), "ip link set eth0 mtu 1500")
	conn, err := place.Dial(h.In(box(0)), "udp", net.JoinHostPort(to.String(), "9"), place.Timeout)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for end := time.Now().Add(place.Timeout); ; { // a UDP socket of Linux sets the DF bit
		if _, err := conn.Write(make([]byte, 1470)); err != nil && strings.Contains(err.Error(), "message too long") {
			return
		}
		if time.Now().After(end) {
			t.Fatal("no error for packets that are larger than the path allows")
		}
	}
}

// TestProgramsReceive sends a datagram to a sandbox while the bridge of its host is down.
func TestProgramsReceive(t *testing.T) {
	f, to := programmed(t)
	h := f.Hosts[1]
	l, err := place.ListenPacket(h.In(box(1)), fmt.Sprint(":", port))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	sh(t, h.Do, "ip link set fl-net down")
	defer sh(t, h.Do, "ip link set fl-net up; ip link set fx-net master fl-net")
	conn, err := place.Dial(f.Hosts[0].In(box(0)), "udp", netip.AddrPortFrom(to, port).String(), place.Timeout)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := l.SetReadDeadline(time.Now().Add(place.Timeout)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write([]byte("straight")); err != nil {
		t.Fatal(err)
	}
	if _, _, err := l.ReadFrom(make([]byte, 16)); err != nil {
		t.Errorf("the datagram takes the bridge: %v", err)
	}
}

// TestProgramsFollowRules lets a rule for datagrams to the overlay's port decide about the route.
func TestProgramsFollowRules(t *testing.T) {
	f, to := programmed(t)
	h := f.Hosts[0]
	serve(t, f.Hosts[1].In(box(1)), box(1))
	hears(t, h.In(box(0)), to, box(1)) // the neighbour's address is known now
	sh(t, h.Do, dropped)
	hears(t, h.In(box(0)), to, box(1))
	sh(t, h.Do, "ip rule add pref 5 ipproto udp dport 4789 prohibit")
	for end := time.Now().Add(place.Timeout); ; { // the last route is used for a second
		conn, err := dial(h.In(box(0)), to, time.Second)
		if err != nil {
			break
		}
		conn.Close()
		if time.Now().After(end) {
			t.Fatal("the datagrams do not follow the rule for their port")
		}
	}
	sh(t, h.Do, "ip rule del pref 5")
	hears(t, h.In(box(0)), to, box(1))
}

// TestProgramsHeal deletes the VXLAN link. The next repair must attach the programs to the new one.
func TestProgramsHeal(t *testing.T) {
	f, to := programmed(t)
	h := f.Hosts[0]
	serve(t, f.Hosts[1].In(box(1)), box(1))
	sh(t, h.Do, "ip link del fx-net")
	if _, err := h.Engine.Heal(t.Context()); err != nil {
		t.Fatal(err)
	}
	hears(t, h.In(box(0)), to, box(1))
	sh(t, h.Do, dropped)
	hears(t, h.In(box(0)), to, box(1))
	undrifted(t, f)
}

// TestProgramsKeepOwnFrames sends to a sandbox that has moved to this host with its address, and has ended. No
// datagram may leave the host.
func TestProgramsKeepOwnFrames(t *testing.T) {
	f := fabric.New(t, fabric.Options{Hosts: 2})
	r := blocks(f, model.DriverVXLAN)
	moved, h := netip.MustParseAddr("10.9.2.3"), f.Hosts[0] // of the block of host 2
	r["moves/net/"+moved.String()] = record.Move{Node: "0"}
	set(t, f.Hosts[1], state(f.Hosts[1], derived(t, r, 1), box(1)))
	s := state(h, derived(t, r, 0), box(0), "moved")
	s.Endpoints[1].Addresses = []netip.Addr{moved}
	set(t, h, s)
	serve(t, h.In("moved"), "moved")
	hears(t, h.In(box(0)), moved, "moved")
	serve(t, f.Hosts[1].In(box(1)), box(1))
	hears(t, h.In(box(0)), netip.MustParseAddr("10.9.2.1"), box(1)) // the gateway's address is known now
	sh(t, h.Do, fmt.Sprintf("ip route add default via %s", f.Hosts[1].Address(0, true)))
	sh(t, f.Hosts[1].Do, "nft 'add table netdev probe; add chain netdev probe in { type filter hook ingress device "+
		fabric.Underlay(0)+" priority 0; }; add rule netdev probe in ip daddr 0.0.0.0 counter; "+
		"add rule netdev probe in udp dport 4789 counter'")
	sh(t, h.Do, "ip link del fv-moved")
	if conn, err := dial(h.In(box(0)), moved, time.Second); err == nil {
		conn.Close()
		t.Error("the sandbox that has ended answers")
	}
	hears(t, h.In(box(0)), netip.MustParseAddr("10.9.2.1"), box(1))
	got := sh(t, f.Hosts[1].Do, "nft list table netdev probe")
	if strings.Count(got, "counter packets ") != 2 || strings.Count(got, "counter packets 0 ") != 1 {
		t.Errorf("the datagrams for a sandbox of this host leave it:\n%s", got)
	}
}
