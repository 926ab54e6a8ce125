package ebpf

import (
	"testing"
	"time"

	"fairlead/internal/kernel/bpf"
)

// BenchmarkLoad measures the time that the kernel needs to verify the programs of
// each kind, with and without support for virtual services.
func BenchmarkLoad(b *testing.B) {
	for _, c := range []struct {
		name, program string
		services      bool
	}{
		{"links", Uplink, false}, {"links/services", Uplink, true},
		{"sockets", bpf.FairleadProgFlConnect4, false}, {"sockets/services", bpf.FairleadProgFlConnect4, true},
	} {
		b.Run(c.name, func(b *testing.B) {
			var took time.Duration
			for b.Loop() {
				p, err := Load(Options{Cookie: 1})
				if err == nil && c.services {
					err = p.Serve()
				}
				if err != nil {
					b.Fatal(err)
				}
				start := time.Now()
				if _, err := p.program(c.program); err != nil {
					b.Fatal(err)
				}
				took += time.Since(start)
				if err := p.Close(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(took.Milliseconds())/float64(b.N), "ms/load")
		})
	}
}
