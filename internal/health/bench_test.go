package health

import (
	"context"
	"fmt"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"fairlead/internal/model"
)

// BenchmarkChecks checks 10,000 real servers in 1,000 services every 2 s, until b.N
// checks are made. It reports the share of one core that this process uses, including
// the kernel's work for both ends on loopback:
//
//	go test -run '^$' -bench BenchmarkChecks -benchtime 20000x ./internal/health
func BenchmarkChecks(b *testing.B) {
	for _, c := range []struct {
		name, role string
		check      model.Check
	}{
		{"tcp", "accept", model.Check{Type: model.CheckTCP}},
		{"http", "http", model.Check{Type: model.CheckHTTP}},
	} {
		b.Run(c.name, func(b *testing.B) {
			port := startServer(b, c.role)
			m := NewMonitor(Options{})
			if err := m.Set(manyServices(c.check, port)); err != nil {
				b.Fatal(err)
			}
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			before := cpu(b)
			began := time.Now()
			b.ResetTimer()
			go m.Run(ctx)
			for m.Counters().Checks < uint64(b.N) {
				time.Sleep(50 * time.Millisecond)
			}
			took := time.Since(began)
			done := m.Counters()
			used := cpu(b) - before
			b.ReportMetric(100*used.Seconds()/took.Seconds(), "%core")
			b.ReportMetric(float64(done.Checks)/took.Seconds(), "checks/s")
			b.ReportMetric(float64(used.Microseconds())/float64(done.Checks), "cpu-µs/check")
			b.ReportMetric(float64(done.Busy.Microseconds())/float64(done.Checks), "µs/check")
			if done.Failed+done.Void > 0 {
				b.Errorf("%+v, and none should fail: %s", done, m.Status()[0].Servers[0].Detail)
			}
		})
	}
}

// manyServices returns 1,000 services of 10 real servers each, at addresses of
// loopback.
func manyServices(c model.Check, port uint16) []model.VirtualService {
	var all []model.VirtualService
	for i := range 1000 {
		v := model.VirtualService{Name: fmt.Sprintf("s%d", i),
			Addresses: []netip.Addr{netip.AddrFrom4([4]byte{192, 0, 2, 1})},
			Ports:     []model.PortRange{model.Port(port)}, Proto: model.TCP, Check: c}
		for j := range 10 {
			v.Reals = append(v.Reals, model.RealServer{Address: netip.AddrFrom4([4]byte{127, byte(1 + j), byte(i >> 8),
				byte(i)}), Weight: 1})
		}
		all = append(all, v)
	}
	return all
}

func cpu(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkSet changes one of 1,000 services of 10 real servers each, and computes the
// service for its data plane.
func BenchmarkSet(b *testing.B) {
	m := NewMonitor(Options{})
	all := manyServices(model.Check{Type: model.CheckTCP}, 80)
	if err := m.Set(all); err != nil {
		b.Fatal(err)
	}
	for i := 0; b.Loop(); i++ {
		one := &all[i%len(all)]
		*one = one.Clone()
		one.Reals[0].Weight++
		if err := m.Set(all); err != nil {
			b.Fatal(err)
		}
		m.Effective(*one)
	}
}
