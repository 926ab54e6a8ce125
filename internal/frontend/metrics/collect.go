package metrics

import (
	"context"
	"log/slog"

	"fairlead/internal/api"
	"fairlead/internal/kernel/counter"

	dto "github.com/prometheus/client_model/go"
)

// collector reads the daemon's counters at each scrape.
type collector struct {
	from Source
	log  *slog.Logger
}

// Gather implements prometheus.Gatherer.
func (c collector) Gather() ([]*dto.MetricFamily, error) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeLimit)
	defer cancel()
	s := c.from.Stats(ctx)
	for _, problem := range s.Problems {
		c.log.Warn("read counters", "error", problem)
	}
	f := newFamilies()
	f.add(scrapeProblems, float64(len(s.Problems)), nil)
	for _, state := range []api.Status{api.Up, api.Waiting, api.Broken} {
		f.add(attachments, float64(s.Attachments[state]), f.labels(attachments.Labels, string(state)))
	}
	for _, n := range s.Networks {
		if n.Traffic != nil {
			f.traffic(networkBytes, networkPackets, networkDrops, *n.Traffic, f.bothDirections(ofNetwork, n.Network))
		}
	}
	for _, e := range s.Endpoints {
		if e.Traffic != nil {
			f.traffic(endpointBytes, endpointPackets, endpointDrops, *e.Traffic,
				f.bothDirections(ofEndpoint, e.Network, e.Endpoint))
		}
	}
	for _, p := range s.Publishes {
		f.publish(p)
	}
	f.services(s)
	f.proxy(s)
	f.fill(ebpfEntries, ebpfMax, s.EBPF)
	f.fill(conntrackEntries, conntrackMax, s.Conntrack)
	return f.all(), nil
}

func (f *families) traffic(bytes, packets, drops Metric, t counter.Traffic, of directions) {
	f.both(bytes, t.Bytes, of)
	f.both(packets, t.Packets, of)
	f.both(drops, t.Drops, of)
}

// publish adds the counters that the publish's mode has.
func (f *families) publish(p api.PublishStats) {
	host := ""
	if p.HostAddr.IsValid() {
		host = p.HostAddr.String()
	}
	of := f.bothDirections(ofPublish, p.Network, p.Endpoint, string(p.Proto), host, p.HostPorts.String(), string(p.Via))
	for _, c := range []struct {
		metric Metric
		n      *counter.InOut
	}{{publishBytes, p.Bytes}, {publishPackets, p.Packets}, {publishDrops, p.Drops}} {
		if c.n != nil {
			f.both(c.metric, *c.n, of)
		}
	}
	if p.Flows != nil {
		f.add(publishFlows, float64(*p.Flows), of.plain())
	}
	if p.Live != nil {
		f.add(publishLive, float64(*p.Live), of.plain())
	}
}

func (f *families) proxy(s api.Stats) {
	if s.Proxy == nil {
		return
	}
	of := f.bothDirections(nil)
	f.both(proxyBytes, counter.InOut{In: s.Proxy.BytesIn, Out: s.Proxy.BytesOut}, of)
	f.both(proxyDatagrams, counter.InOut{In: s.Proxy.DatagramsIn, Out: s.Proxy.DatagramsOut}, of)
	f.add(proxyConnections, float64(s.Proxy.Accepted), nil)
	f.add(proxyFlows, float64(s.Proxy.Opened), nil)
	f.add(proxyLive, float64(s.Proxy.Connections), f.labels(proxyLive.Labels, "tcp"))
	f.add(proxyLive, float64(s.Proxy.Flows), f.labels(proxyLive.Labels, "udp"))
}

func (f *families) fill(entries, most Metric, t *counter.Fill) {
	if t != nil {
		f.add(entries, float64(t.Entries), nil)
		f.add(most, float64(t.Max), nil)
	}
}
