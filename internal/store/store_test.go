package store_test

import (
	"net/netip"
	"reflect"
	"testing"

	"fairlead/internal/ipam"
	"fairlead/internal/model"
	"fairlead/internal/store"
)

func record() store.Record {
	return store.Record{
		Applied: model.State{Networks: []model.Network{{Name: "net",
			Subnets: []model.Subnet{{Prefix: netip.MustParsePrefix("10.0.0.0/24")}}}},
			Endpoints: []model.Endpoint{{Name: "web", Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.2")}}},
			Publishes: []model.Publish{{Endpoint: "web"}},
			Services: []model.VirtualService{{Name: "web", Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.10")},
				Reals: []model.RealServer{{Endpoint: "web", Weight: 1}}}}},
		Leases:   ipam.Leases{"web": {netip.MustParseAddr("10.0.0.2")}},
		Settings: []store.Setting{{Name: "net.ipv4.ip_forward", Value: "1", Before: "0"}},
		Devices:  []store.Device{{Device: "eth2", Was: "{}"}},
		Inside:   []store.Inside{{Netns: "/run/netns/web", Link: "eth0", Device: "eth2"}},
		Virtual:  []store.Virtual{{Link: "eth0", Addr: netip.MustParseAddr("192.0.2.10")}},
	}
}

// spoil modifies everything that a record refers to.
func spoil(r store.Record) {
	r.Applied.Networks[0].Name = "x"
	r.Applied.Networks[0].Subnets[0] = model.Subnet{}
	r.Applied.Endpoints[0].Addresses[0] = netip.Addr{}
	r.Applied.Endpoints[0].Name = "x"
	r.Applied.Publishes[0].Endpoint = "x"
	r.Leases["web"][0] = netip.Addr{}
	r.Leases["x"] = nil
	r.Applied.Services[0].Reals[0].Weight = 7
	r.Settings[0].Before = "x"
	r.Inside[0].Netns = "x"
	r.Virtual[0].Link = "x"
}

func desired() model.Desired {
	return model.Desired{
		Networks: []model.Network{{Name: "lan",
			Subnets: []model.Subnet{{Prefix: netip.MustParsePrefix("10.0.0.0/24")}}}},
		Attachments: []model.Attachment{
			{Endpoint: model.Endpoint{Name: "kept", Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.3")}},
				Ref: "web", Namespace: "cookie 2", Keep: true},
			{Endpoint: model.Endpoint{Name: "left"}, Ref: "/run/netns/web", Namespace: "cookie 1"}},
		Publishes: []model.Publish{{Endpoint: "kept", Proto: model.TCP}, {Endpoint: "left", Proto: model.UDP}},
		Services: []model.VirtualService{{Name: "web", Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.10")},
			Sorry: netip.MustParseAddrPort("192.0.2.9:80"),
			Reals: []model.RealServer{{Address: netip.MustParseAddr("10.0.0.3"), Weight: 1},
				{Select: model.Select{Label: "app=web"}}}}},
	}
}

// recordStore is the interface that Memory and File implement.
type recordStore interface {
	Load() (store.Record, error)
	Save(store.Record) error
	Desired() (model.Desired, error)
	SaveDesired(model.Desired) error
}

func stores(t *testing.T) map[string]recordStore {
	t.Helper()
	f, err := store.OpenFile(store.Places{State: t.TempDir(), Run: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return map[string]recordStore{"memory": &store.Memory{}, "file": f}
}

func TestStoresKeepACopy(t *testing.T) {
	for name, m := range stores(t) {
		t.Run(name, func(t *testing.T) {
			if r, err := m.Load(); err != nil || !reflect.DeepEqual(r, store.Record{}) {
				t.Errorf("at first: %+v, %v", r, err)
			}
			saved := record()
			if err := m.Save(saved); err != nil {
				t.Fatal(err)
			}
			spoil(saved)
			loaded, err := m.Load()
			if err != nil || !reflect.DeepEqual(loaded, record()) {
				t.Fatalf("changed through the saved value: %+v, %v", loaded, err)
			}
			spoil(loaded)
			if again, _ := m.Load(); !reflect.DeepEqual(again, record()) {
				t.Errorf("changed through a loaded copy: %+v", again)
			}
		})
	}
}

func TestStoresKeepDesired(t *testing.T) {
	for name, m := range stores(t) {
		t.Run(name, func(t *testing.T) {
			if w, err := m.Desired(); err != nil || !reflect.DeepEqual(w, model.Desired{}) {
				t.Errorf("at first: %+v, %v", w, err)
			}
			saved := desired()
			if err := m.SaveDesired(saved); err != nil {
				t.Fatal(err)
			}
			saved.Attachments[0].Addresses[0] = netip.Addr{}
			saved.Networks[0].Subnets[0] = model.Subnet{}
			if w, err := m.Desired(); err != nil || !reflect.DeepEqual(w, desired()) {
				t.Errorf("changed through the saved value: %+v, %v", w, err)
			}
		})
	}
}

func TestSetting(t *testing.T) {
	if s, ok := record().Setting("", "net.ipv4.ip_forward"); !ok || s.Before != "0" {
		t.Errorf("%+v %v", s, ok)
	}
	for _, other := range [][2]string{{"/run/netns/web", "net.ipv4.ip_forward"}, {"", "net.ipv6.conf.all.forwarding"}} {
		if s, ok := record().Setting(other[0], other[1]); ok {
			t.Errorf("%v is %+v", other, s)
		}
	}
}
