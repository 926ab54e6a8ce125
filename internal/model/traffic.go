package model

// FastLink is an uplink that the fast path was selected for.
type FastLink struct {
	Link string `json:"link"`
	// Refused is the reason why the driver does not run the fast path and packets
	// pass tc instead. It is empty if the fast path is attached.
	Refused string `json:"refused,omitempty"`
}

// String returns the link's name, and the reason if the fast path is not attached.
func (f FastLink) String() string {
	if f.Refused == "" {
		return f.Link
	}
	return "not on " + f.Link + ": " + f.Refused
}

// ProxyStats counts what a proxy has forwarded since it started. In is from
// clients to targets, Out from targets to clients.
type ProxyStats struct {
	// BytesIn and BytesOut count payload of both protocols, spliced or not.
	BytesIn  uint64 `json:"bytesIn"`
	BytesOut uint64 `json:"bytesOut"`
	// Accepted counts TCP connections ever accepted.
	Accepted uint64 `json:"accepted"`
	// Opened counts UDP flows ever opened.
	Opened       uint64 `json:"opened"`
	DatagramsIn  uint64 `json:"datagramsIn"`
	DatagramsOut uint64 `json:"datagramsOut"`
	// Connections and Flows are those alive now.
	Connections uint64 `json:"connections"`
	Flows       uint64 `json:"flows"`
	// CPUSeconds is the CPU time of the proxy's process. It is 0 if the proxy is of a version that does not report it.
	CPUSeconds float64 `json:"cpuSeconds,omitempty"`
}
