package metrics

// Metric describes one metric.
type Metric struct {
	Name string
	// Type is the type in the text format: counter, gauge or histogram.
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

// directed returns the labels with the label direction added.
func directed(labels []string) []string {
	return append(labels[:len(labels):len(labels)], labelDirection)
}

// The metrics. The Prometheus library adds those of the process and of the Go
// runtime.
var (
	networkBytes = Metric{"fairlead_network_bytes_total", "counter", directed(ofNetwork), "Bytes of frames on the " +
		"links of the network's endpoints."}
	networkPackets = Metric{"fairlead_network_packets_total", "counter", directed(ofNetwork), "Packets on the links " +
		"of the network's endpoints."}
	networkDrops = Metric{"fairlead_network_drops_total", "counter", directed(ofNetwork),
		"Packets dropped by the links of the network's endpoints."}

	endpointBytes = Metric{"fairlead_endpoint_bytes_total", "counter", directed(ofEndpoint), "Bytes of frames on " +
		"the endpoint's link."}
	endpointPackets = Metric{"fairlead_endpoint_packets_total", "counter", directed(ofEndpoint),
		"Packets on the endpoint's link."}
	endpointDrops = Metric{"fairlead_endpoint_drops_total", "counter", directed(ofEndpoint),
		"Packets dropped by the endpoint's link."}

	publishBytes = Metric{"fairlead_publish_bytes_total", "counter", directed(ofPublish), "Bytes of the publish: " +
		"of payload via proxy, of frames via ebpf without those of this host's own processes. There is no series " +
		"via nat, where only the first packet of a flow passes a rule, nor via socket."}
	publishPackets = Metric{"fairlead_publish_packets_total", "counter", directed(ofPublish),
		"Packets of the publish: UDP datagrams via proxy, via ebpf all packets but those of this host's own " +
			"processes. There is no series for TCP via proxy, nor via nat and socket."}
	publishDrops = Metric{"fairlead_publish_drops_total", "counter", directed(ofPublish), "Packets via ebpf that " +
		"could not be redirected."}
	publishFlows = Metric{"fairlead_publish_flows_total", "counter", ofPublish, "Connections and UDP flows since " +
		"the start."}
	publishLive = Metric{"fairlead_publish_live_flows", "gauge", ofPublish, "Connections and UDP flows that are " +
		"open."}

	proxyBytes = Metric{"fairlead_proxy_bytes_total", "counter", directed(nil), "Bytes of payload that the " +
		"proxy forwarded."}
	proxyDatagrams = Metric{"fairlead_proxy_datagrams_total", "counter", directed(nil), "UDP datagrams that the " +
		"proxy forwarded."}
	proxyConnections = Metric{"fairlead_proxy_connections_total", "counter", nil,
		"TCP connections that the proxy has accepted."}
	proxyFlows = Metric{"fairlead_proxy_flows_total", "counter", nil, "UDP flows that the proxy has opened."}
	proxyLive  = Metric{"fairlead_proxy_live_sessions", "gauge", []string{"proto"},
		"TCP connections and UDP flows that the proxy has open."}

	ebpfEntries = Metric{"fairlead_ebpf_table_entries", "gauge", nil,
		"Entries of the table of eBPF publishes and grants."}
	ebpfMax = Metric{"fairlead_ebpf_table_max_entries", "gauge", nil, "Maximum entries of the table of " +
		"eBPF publishes and grants."}
	conntrackEntries = Metric{"fairlead_conntrack_entries", "gauge", nil, "Entries in the host's conntrack table."}
	conntrackMax     = Metric{"fairlead_conntrack_max_entries", "gauge", nil, "Maximum entries of the host's " +
		"conntrack table."}

	attachments    = Metric{"fairlead_attachments", "gauge", []string{"state"}, "Attachments by their state."}
	scrapeProblems = Metric{"fairlead_scrape_problems", "gauge", nil, "Counters that this scrape could not read; " +
		"the log names them."}

	applySeconds = Metric{"fairlead_apply_duration_seconds", "histogram", nil, "Time to apply the desired state to " +
		"the host."}
	applyFailures = Metric{"fairlead_apply_failures_total", "counter", nil, "Times that applying the desired state " +
		"failed."}
	healed = Metric{"fairlead_healed_objects_total", "counter", []string{"kind"}, "Kernel objects that " +
		"differed from the desired state and were repaired."}
	buildInfo = Metric{"fairlead_build_info", "gauge", []string{"version", "goversion"},
		"1, with the version as a label."}
)
