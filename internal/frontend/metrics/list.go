package metrics

import (
	"fmt"
	"slices"
	"strings"
)

// Metric says what one metric is.
type Metric struct {
	Name string
	// Type is as in the text format: counter, gauge or histogram.
	Type   string
	Labels []string
	Help   string
}

// The labels.
const (
	labelNetwork   = "network"
	labelEndpoint  = "endpoint"
	labelDirection = "direction"
)

var (
	ofNetwork  = []string{labelNetwork}
	ofEndpoint = []string{labelNetwork, labelEndpoint}
	ofPublish  = []string{labelNetwork, labelEndpoint, "proto", "host", "ports", "via"}
)

// directed are the labels of a count in each direction.
func directed(labels []string) []string {
	return append(labels[:len(labels):len(labels)], labelDirection)
}

// The metrics. Those of the process and of the Go runtime are the library's.
var (
	networkBytes   = Metric{"fairlead_network_bytes_total", "counter", directed(ofNetwork), "Bytes of frames by the links of the network's endpoints."}
	networkPackets = Metric{"fairlead_network_packets_total", "counter", directed(ofNetwork), "Packets by the links of the network's endpoints."}
	networkDrops   = Metric{"fairlead_network_drops_total", "counter", directed(ofNetwork), "Packets dropped by the links of the network's endpoints."}

	endpointBytes   = Metric{"fairlead_endpoint_bytes_total", "counter", directed(ofEndpoint), "Bytes of frames by the endpoint's link."}
	endpointPackets = Metric{"fairlead_endpoint_packets_total", "counter", directed(ofEndpoint), "Packets by the endpoint's link."}
	endpointDrops   = Metric{"fairlead_endpoint_drops_total", "counter", directed(ofEndpoint), "Packets dropped by the endpoint's link."}

	publishBytes   = Metric{"fairlead_publish_bytes_total", "counter", directed(ofPublish), "Bytes by the publish: of payload via proxy, of frames via ebpf."}
	publishPackets = Metric{"fairlead_publish_packets_total", "counter", directed(ofPublish), "Packets by the publish: of UDP via proxy, all via ebpf."}
	publishDrops   = Metric{"fairlead_publish_drops_total", "counter", directed(ofPublish), "Packets via ebpf that could not be led."}
	publishFlows   = Metric{"fairlead_publish_flows_total", "counter", ofPublish, "Connections and UDP flows that have begun."}
	publishLive    = Metric{"fairlead_publish_live_flows", "gauge", ofPublish, "Connections and UDP flows that there are."}

	proxyBytes       = Metric{"fairlead_proxy_bytes_total", "counter", directed(nil), "Bytes of payload by the proxy."}
	proxyDatagrams   = Metric{"fairlead_proxy_datagrams_total", "counter", directed(nil), "UDP datagrams by the proxy."}
	proxyConnections = Metric{"fairlead_proxy_connections_total", "counter", nil, "TCP connections that the proxy has accepted."}
	proxyFlows       = Metric{"fairlead_proxy_flows_total", "counter", nil, "UDP flows that the proxy has opened."}
	proxyLive        = Metric{"fairlead_proxy_live_sessions", "gauge", []string{"proto"}, "TCP connections and UDP flows that the proxy has open."}

	ebpfEntries      = Metric{"fairlead_ebpf_table_entries", "gauge", nil, "Entries of the table of eBPF publishes and grants."}
	ebpfMax          = Metric{"fairlead_ebpf_table_max_entries", "gauge", nil, "Entries that the table of eBPF publishes and grants takes."}
	conntrackEntries = Metric{"fairlead_conntrack_entries", "gauge", nil, "Flows in the host's conntrack table, whosesoever."}
	conntrackMax     = Metric{"fairlead_conntrack_max_entries", "gauge", nil, "Flows that the host's conntrack table takes."}

	attachments    = Metric{"fairlead_attachments", "gauge", []string{"state"}, "Attachments by their state."}
	scrapeProblems = Metric{"fairlead_scrape_problems", "gauge", nil, "Counters that could not be read by this scrape; the log says which."}

	applySeconds  = Metric{"fairlead_apply_duration_seconds", "histogram", nil, "Time to bring the host to what is wished for."}
	applyFailures = Metric{"fairlead_apply_failures_total", "counter", nil, "Times that the host could not be brought to what is wished for."}
	healed        = Metric{"fairlead_healed_objects_total", "counter", []string{"kind"}, "Objects in the kernel that had strayed and were put right."}
	buildInfo     = Metric{"fairlead_build_info", "gauge", []string{"version", "goversion"}, "1, with the version as a label."}
)

// collected are read when somebody asks; the others are counted as it happens.
var collected = []Metric{
	networkBytes, networkPackets, networkDrops, endpointBytes, endpointPackets, endpointDrops,
	publishBytes, publishPackets, publishDrops, publishFlows, publishLive,
	proxyBytes, proxyDatagrams, proxyConnections, proxyFlows, proxyLive,
	ebpfEntries, ebpfMax, conntrackEntries, conntrackMax, attachments, scrapeProblems,
}

// List returns every metric of ours.
func List() []Metric {
	return slices.Concat(collected, ofServices, []Metric{applySeconds, applyFailures, healed, buildInfo})
}

// Table writes them as a table in markdown.
func Table() string {
	var b strings.Builder
	b.WriteString("| metric | type | labels | what |\n|---|---|---|---|\n")
	for _, m := range List() {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", m.Name, m.Type, strings.Join(m.Labels, ", "), m.Help)
	}
	return b.String()
}
