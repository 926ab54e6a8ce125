package daemon_test

import (
	"context"
	"fmt"
	"net/netip"
	"testing"

	"fairlead/internal/daemon"
	"fairlead/internal/model"
)

// many are services with ten real servers each.
func many(n int) []model.VirtualService {
	var all []model.VirtualService
	for i := range n {
		v := site(fmt.Sprint("web", i))
		v.Addresses = []netip.Addr{netip.AddrFrom4([4]byte{198, 18, byte(i >> 8), byte(i)})}
		for j := range 10 {
			v.Reals = append(v.Reals, model.RealServer{Address: netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), byte(j + 1)}), Port: 8080, Weight: 1})
		}
		all = append(all, v)
	}
	return all
}

// BenchmarkServiceChange takes one real server of 10,000 out, and then back, as
// one change each.
func BenchmarkServiceChange(b *testing.B) {
	w := newWorld(b).start()
	if _, err := w.Apply(context.Background(), daemon.Spec{Services: many(1000)}, false); err != nil {
		b.Fatal(err)
	}
	for i := 0; b.Loop(); i++ {
		do := []daemon.RealAction{daemon.DrainReal, daemon.EnableReal}[i%2]
		if _, err := w.ChangeReal(daemon.RealRequest{Service: "web7", Real: "10.0.7.3:8080", Do: do}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkServiceApply makes 1,000 services with 10,000 real servers; to take
// them away is not counted.
func BenchmarkServiceApply(b *testing.B) {
	w := newWorld(b).start()
	all := many(1000)
	apply := func(services []model.VirtualService) {
		if _, err := w.Apply(context.Background(), daemon.Spec{Services: services}, false); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		apply(all)
		b.StopTimer()
		apply(nil)
		b.StartTimer()
	}
}
