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
		Desired: model.State{Networks: []model.Network{{Name: "net", Subnets: []model.Subnet{{Prefix: netip.MustParsePrefix("10.0.0.0/24")}}}},
			Endpoints: []model.Endpoint{{Name: "web", Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.2")}}}, Publishes: []model.Publish{{Endpoint: "web"}}},
		Leases:   ipam.Leases{"web": {netip.MustParseAddr("10.0.0.2")}},
		Settings: []store.Setting{{Name: "net.ipv4.ip_forward", Value: "1", Before: "0"}},
	}
}

// spoil changes everything that a record refers to.
func spoil(r store.Record) {
	r.Desired.Networks[0].Name = "x"
	r.Desired.Networks[0].Subnets[0] = model.Subnet{}
	r.Desired.Endpoints[0].Addresses[0] = netip.Addr{}
	r.Desired.Endpoints[0].Name = "x"
	r.Desired.Publishes[0].Endpoint = "x"
	r.Leases["web"][0] = netip.Addr{}
	r.Leases["x"] = nil
	r.Settings[0].Before = "x"
}

func TestMemoryKeepsACopy(t *testing.T) {
	var m store.Memory
	if r, err := m.Load(); err != nil || !reflect.DeepEqual(r, store.Record{}) {
		t.Errorf("at first: %+v, %v", r, err)
	}
	given := record()
	if err := m.Save(given); err != nil {
		t.Fatal(err)
	}
	spoil(given)
	loaded, err := m.Load()
	if err != nil || !reflect.DeepEqual(loaded, record()) {
		t.Fatalf("changed from outside: %+v, %v", loaded, err)
	}
	spoil(loaded)
	if again, _ := m.Load(); !reflect.DeepEqual(again, record()) {
		t.Errorf("changed by who loaded it: %+v", again)
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
