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

// BenchmarkServiceChange takes one real server of 10,000 out and back: twice one
// change.
func BenchmarkServiceChange(b *testing.B) {
	w := newWorld(b).start()
	if _, err := w.Apply(context.Background(), daemon.Spec{Services: many(1000)}, false); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		for _, do := range []daemon.RealAction{daemon.DrainReal, daemon.EnableReal} {
			if _, err := w.ChangeReal(daemon.RealRequest{Service: "web7", Real: "10.0.7.3:8080", Do: do}); err != nil {
				b.Fatal(err)
			}
		}
	}
}

// BenchmarkServiceApply makes 1,000 services with 10,000 real servers, and takes
// them away.
func BenchmarkServiceApply(b *testing.B) {
	w := newWorld(b).start()
	all := many(1000)
	for b.Loop() {
		for _, s := range [][]model.VirtualService{all, nil} {
			if _, err := w.Apply(context.Background(), daemon.Spec{Services: s}, false); err != nil {
				b.Fatal(err)
			}
		}
	}
}
