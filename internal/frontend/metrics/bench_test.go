package metrics

import (
	"fmt"
	"testing"

	"fairlead/internal/api"
	"fairlead/internal/kernel/counter"
	"fairlead/internal/model"
)

// BenchmarkScrape writes the metrics of a host with many endpoints, each with a
// publish. BenchmarkStats of package daemon measures reading the counters.
func BenchmarkScrape(b *testing.B) {
	for _, n := range []int{100, 1000} {
		b.Run(fmt.Sprintf("endpoints=%d", n), func(b *testing.B) {
			s := everything()
			for i := range n {
				name := fmt.Sprint("web", i)
				t := counter.Traffic{Bytes: counter.InOut{In: uint64(i), Out: 2}}
				s.Endpoints = append(s.Endpoints, api.EndpointStats{Endpoint: name, Network: "shop", Traffic: &t})
				s.Publishes = append(s.Publishes, api.PublishStats{Network: "shop",
					Publish: model.Publish{Endpoint: name, Via: model.ViaEBPF,
						Proto: model.TCP, HostPorts: model.Port(uint16(10000 + i))}, Bytes: &t.Bytes,
					Packets: &t.Packets,
					Drops:   &t.Drops, Flows: some(1), Live: some(1)})
			}
			h, _ := handler(b, s)
			b.ReportAllocs()
			for b.Loop() {
				scrape(b, h)
			}
		})
	}
}
