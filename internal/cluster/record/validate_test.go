package record_test

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"fairlead/internal/cluster/kv"
	"fairlead/internal/cluster/record"
	"fairlead/internal/model"
)

func service() record.Service {
	return record.Service{Spec: model.VirtualService{Name: "web",
		Addresses: []netip.Addr{netip.MustParseAddr("198.51.100.1")},
		Ports:     []model.PortRange{model.Port(80)}, Proto: model.TCP, Plane: model.PlaneEBPF,
		Forward: model.ForwardDirect}}
}

func network() record.Network {
	return record.Network{BlockBits: []int{26}, Spec: model.Network{Name: "shop", Driver: model.DriverVXLAN,
		Subnets: []model.Subnet{{Prefix: netip.MustParsePrefix("10.9.0.0/16")}}}}
}

func address() record.Address {
	return record.Address{Prefix: netip.MustParsePrefix("192.0.2.10/24"), Hold: time.Second}
}

func peer() record.BGPPeer {
	return record.BGPPeer{Address: netip.MustParseAddr("192.0.2.1"), AS: 64512, LocalAS: 64513}
}

// decodes decodes a changed record, and checks that the error has a text, and that nothing of a refused record
// is returned. Without a text, the record is valid.
func decodes[T any](t *testing.T, key, want string, r T, change func(*T)) {
	t.Helper()
	change(&r)
	got, err := record.Decode[T](kv.Entry{Key: key, Value: record.Encode(r)})
	if text := fmt.Sprint(err); (err == nil) != (want == "") || !strings.Contains(text, want) {
		t.Errorf("%s: %v, want %q", key, err, want)
	}
	if err != nil && !reflect.ValueOf(got).IsZero() {
		t.Errorf("%s, which is refused, has %+v", key, got)
	}
}

// TestDecodeRefuses decodes records that anyone who can write to the store can write. A record that is not
// valid is returned as the zero value. A service with more frontends than memory is refused before they are listed.
func TestDecodeRefuses(t *testing.T) {
	for want, change := range map[string]func(*record.Service){
		"":          func(*record.Service) {},
		"frontends": func(r *record.Service) { r.Spec.Ports = []model.PortRange{{First: 1, Last: 65535}} },
		"2000 addresses": func(r *record.Service) {
			r.Spec.Addresses = slices.Repeat(r.Spec.Addresses, 2000)
		},
		"and 2000 ports":  func(r *record.Service) { r.Spec.Ports = slices.Repeat(r.Spec.Ports, 2000) },
		"it has the name": func(r *record.Service) { r.Spec.Name = "blog" },
		"check: body: the regular expression needs about": func(r *record.Service) {
			r.Spec.Check = model.Check{Type: model.CheckHTTP, Body: strings.Repeat(".{999}", 20)}
		},
		"check: expect: the regular expression has 9000 bytes": func(r *record.Service) {
			r.Spec.Check = model.Check{Type: model.CheckTCP, Expect: strings.Repeat("a", 9000)}
		},
		"interval 1ns": func(r *record.Service) { r.Spec.Check.Interval = 1 },
		"check exec: hosts run no": func(r *record.Service) {
			r.Spec.Check = model.Check{Type: model.CheckExec, Command: []string{"/bin/true"}}
		},
	} {
		decodes(t, "svcs/web", want, service(), change)
	}
	decodes(t, "svcs/../web", "no slash", service(), func(r *record.Service) { r.Spec.Name = "../web" })
	for want, change := range map[string]func(*record.Network){
		"":                         func(*record.Network) {},
		"omit key-file":            func(r *record.Network) { r.Spec.Overlay.KeyFile = "/etc/shadow" },
		"allow-overlap":            func(r *record.Network) { r.Spec.AllowOverlap = true },
		"parent, mode":             func(r *record.Network) { r.Spec.Parent = "eth0" },
		"driver device":            func(r *record.Network) { r.Spec.Driver = model.DriverDevice },
		"it has the name":          func(r *record.Network) { r.Spec.Name = "blog" },
		"omit range":               func(r *record.Network) { r.Spec.Subnets[0].Gateway = netip.MustParseAddr("10.9.0.9") },
		"records of blocks":        func(r *record.Network) { r.Spec.Remote = []model.Route{{}} },
		"omit peers":               func(r *record.Network) { r.Spec.Overlay.Peers = []model.Peer{{}} },
		"has direct true":          func(r *record.Network) { r.Direct = true },
		"1 subnets and 0":          func(r *record.Network) { r.BlockBits = nil },
		"block size 8: want":       func(r *record.Network) { r.BlockBits[0] = 8 },
		"want a subnet, e.g. 10.9": func(r *record.Network) { r.Spec.Subnets = nil },
	} {
		decodes(t, "nets/shop", want, network(), change)
	}
	decodes(t, "nets/../shop", "no slash", network(), func(r *record.Network) { r.Spec.Name = "../shop" })
	for want, change := range map[string]func(*record.Address){
		"":                     func(*record.Address) {},
		"at most /8":           func(r *record.Address) { r.Prefix = netip.MustParsePrefix("192.0.2.10/1") },
		"other hosts can rea":  func(r *record.Address) { r.Prefix = netip.MustParsePrefix("127.0.0.1/8") },
		"hold time 1ns":        func(r *record.Address) { r.Hold = 1 },
		"announce: want bgp":   func(r *record.Address) { r.Announce = "all" },
		`link "a/b"`:           func(r *record.Address) { r.Link = "a/b" },
		"it has the name":      func(r *record.Address) { r.Prefix = netip.MustParsePrefix("192.0.2.11/24") },
		"want an address with": func(r *record.Address) { r.Prefix = netip.Prefix{} },
	} {
		decodes(t, "addrs/192.0.2.10", want, address(), change)
	}
	for want, change := range map[string]func(*record.BGPPeer){
		"":                     func(*record.BGPPeer) {},
		"address of a router":  func(r *record.BGPPeer) { r.Address = netip.MustParseAddr("::1") },
		"want the number of":   func(r *record.BGPPeer) { r.AS = 0 },
		"it has the name":      func(r *record.BGPPeer) { r.Address = netip.MustParseAddr("192.0.2.2") },
		"the address of a rou": func(r *record.BGPPeer) { r.Address = netip.MustParseAddr("fe80::1%eth0") },
	} {
		decodes(t, "bgp/192.0.2.1", want, peer(), change)
	}
}
