package daemon_test

import (
	"context"
	"testing"

	"fairlead/internal/api"
	"fairlead/internal/model"
)

// BenchmarkStats reads the counters of a thousand endpoints of a bridge, each
// with a port that is published via nat, ebpf or proxy.
func BenchmarkStats(b *testing.B) {
	w := newWorld(b).start()
	w.network(lan)
	for i := range manySandboxes {
		r := w.attach(api.AttachRequest{Endpoint: model.Endpoint{Network: "lan", Sandbox: w.path(b)}})
		via := []model.Via{model.ViaNAT, model.ViaEBPF, model.ViaProxy}[i%3]
		_, err := w.Publish(context.Background(),
			api.PublishRequest{Target: r.Attachments[0].Name, Publishes: []model.Publish{
				{Via: via, Proto: model.TCP, HostPorts: model.Port(uint16(10000 + i)), Ports: model.Port(80)}}})
		if err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	before := used(b)
	for b.Loop() {
		if s := w.Stats(context.Background()); len(s.Problems) > 0 || len(s.Endpoints) != manySandboxes {
			b.Fatal(len(s.Endpoints), s.Problems)
		}
	}
	b.ReportMetric(float64((used(b)-before).Microseconds())/1000/float64(b.N), "cpu-ms/op")
	if err := w.TearDown(context.Background()); err != nil {
		b.Fatal(err)
	}
}
