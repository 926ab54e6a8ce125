package device

import (
	"encoding/hex"
	"errors"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"fairlead/internal/plan"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// TestDeviceMark writes a device's mark and parses it.
func TestDeviceMark(t *testing.T) {
	full := savedDevice{Device: "0000:3b:02.1", Name: "enp59s0f1v1", MTU: 9000, MAC: "52:54:00:12:34:56", Up: true,
		Addresses: []netip.Prefix{netip.MustParsePrefix("192.0.2.7/24"), netip.MustParsePrefix("2001:db8::7/64")},
		Alias:     `uplink "7", rack <3>`}
	for _, w := range []savedDevice{{Device: "eth2", Name: "eth2", MTU: 1500}, full} {
		mark, err := w.mark()
		if err != nil {
			t.Fatal(err)
		}
		got, ok := parseMark(&netlink.Device{LinkAttrs: netlink.LinkAttrs{Alias: mark}})
		if !ok || !reflect.DeepEqual(got, w) {
			t.Errorf("%s is parsed as %+v, want %+v", mark, got, w)
		}
	}
	for _, alias := range []string{"", "uplink", plan.Mark + ":web", plan.DeviceMark, plan.DeviceMark + "{}",
		plan.DeviceMark + `{"device":"eth2"}`} {
		if w, ok := parseMark(&netlink.Device{LinkAttrs: netlink.LinkAttrs{Alias: alias}}); ok {
			t.Errorf("%q is parsed as a mark of %+v", alias, w)
		}
	}
	full.Alias = strings.Repeat("x", 200)
	if _, err := full.mark(); err == nil || !strings.Contains(err.Error(), "cannot be saved") {
		t.Errorf("a mark that is too long: %v", err)
	}
}

// TestIPoIBRequest compares the request for a child with the one that iproute2 6.1
// sends for `ip link add link lo name eth0 netns … mtu 2044 type ipoib pkey
// 0x8001`, without the header's sequence number.
func TestIPoIBRequest(t *testing.T) {
	want := "60000000" + "1000" + "0506" + // length, RTM_NEWLINK, flags
		"00000000000000000000000000000000" + // struct ifinfomsg
		"08001c0004000000" + // IFLA_NET_NS_FD 4
		"08000400fc070000" + // IFLA_MTU 2044
		"0800050001000000" + // IFLA_LINK 1
		"090003006574683000000000" + // IFLA_IFNAME eth0
		"1c001200" + "0900010069706f6962000000" + // IFLA_LINKINFO, its kind ipoib
		"0c000200" + "0600010001800000" // its data: IFLA_IPOIB_PKEY 0x8001
	got := ipoibRequest(1, 4, plan.IPoIB{Name: "eth0", MTU: 2044, PKey: 0x8001}).Serialize()
	if text := hex.EncodeToString(got[:8]) + hex.EncodeToString(got[16:]); text != want {
		t.Errorf("got  %s\nwant %s", text, want)
	}
}

// TestIPoIBErrors checks the texts for the errors that ipoib_netlink.c and
// ipoib_vlan.c return.
func TestIPoIBErrors(t *testing.T) {
	for _, c := range []struct {
		err   error
		encap string
		mtu   int
		want  string
	}{
		{unix.EOPNOTSUPP, "infiniband", 0, "modprobe ib_ipoib"},
		{unix.ENODEV, "ether", 0, "ib0 is not an InfiniBand link (ether)"},
		{unix.EINVAL, "ether", 0, "ib0 is not an InfiniBand link (ether)"},
		{unix.ENOTUNIQ, "infiniband", 0, "ib0 already has a child with pkey 0x8001"},
		{unix.EEXIST, "infiniband", 0, "the sandbox has an interface eth0 already"},
		{unix.EINVAL, "infiniband", 65520, "no more than its parent's MTU"},
		{unix.EINVAL, "infiniband", 0, "ib0 must not be a child itself"},
		{unix.ENOMEM, "infiniband", 0, "create a child of ib0"},
	} {
		err := ipoibError(c.err, c.encap, plan.IPoIB{Netns: "/run/netns/web", Name: "eth0", Parent: "ib0", PKey: 0x8001,
			MTU: c.mtu})
		if !errors.Is(err, c.err) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v on %s gives %v", c.err, c.encap, err)
		}
	}
}
