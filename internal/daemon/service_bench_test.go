package daemon_test

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/model"
)

// many returns n services with ten real servers each.
func many(n int, plane model.Plane) []model.VirtualService {
	var all []model.VirtualService
	for i := range n {
		v := site(fmt.Sprint("web", i))
		v.Plane = plane
		v.Addresses = []netip.Addr{netip.AddrFrom4([4]byte{198, 18, byte(i >> 8), byte(i)})}
		for j := range 10 {
			v.Reals = append(v.Reals, model.RealServer{Address: netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i),
				byte(j + 1)}), Port: 8080, Weight: 1})
		}
		all = append(all, v)
	}
	return all
}

// eachPlane runs a benchmark on the data planes that every kernel has.
func eachPlane(b *testing.B, run func(*testing.B, []model.VirtualService)) {
	for _, plane := range []model.Plane{model.PlaneEBPF, model.PlaneNFT} {
		b.Run(string(plane), func(b *testing.B) { run(b, many(1000, plane)) })
	}
}

// BenchmarkServiceChange drains one real server of 10,000 and enables it again, as one
// change each.
func BenchmarkServiceChange(b *testing.B) {
	eachPlane(b, func(b *testing.B, all []model.VirtualService) {
		w := newWorld(b).start()
		if _, err := w.Apply(context.Background(), api.Spec{Services: all}, false); err != nil {
			b.Fatal(err)
		}
		before := used(b)
		for i := 0; b.Loop(); i++ {
			do := []api.RealAction{api.DrainReal, api.EnableReal}[i%2]
			if _, err := w.ChangeReal(api.RealRequest{Service: "web7", Real: "10.0.7.3:8080", Do: do}); err != nil {
				b.Fatal(err)
			}
		}
		reportCPU(b, used(b)-before)
	})
}

// BenchmarkServiceApply creates 1,000 services with 10,000 real servers. Their removal
// does not count.
func BenchmarkServiceApply(b *testing.B) {
	eachPlane(b, func(b *testing.B, all []model.VirtualService) {
		w := newWorld(b).start()
		apply := func(services []model.VirtualService) {
			if _, err := w.Apply(context.Background(), api.Spec{Services: services}, false); err != nil {
				b.Fatal(err)
			}
		}
		var cpu time.Duration
		for b.Loop() {
			before := used(b)
			apply(all)
			cpu += used(b) - before
			b.StopTimer()
			apply(nil)
			b.StartTimer()
		}
		reportCPU(b, cpu)
	})
}

// reportCPU reports the CPU time of the process, which does not depend on other load.
func reportCPU(b *testing.B, spent time.Duration) {
	b.ReportMetric(float64(spent.Microseconds())/1000/float64(b.N), "cpu-ms/op")
}
