package history

import "fairlead/internal/gateway/metric"

// Kind says how the values that Run reads become figures.
type Kind int

const (
	// Level is a value that is shown as it is.
	Level Kind = iota
	// Rate is a counter, which is shown per second.
	Rate
	// Mean is a counter, which is shown for each count of the figure Of. It is unknown if that has not changed.
	Mean
)

// Figure describes one series.
type Figure struct {
	Key  string
	Kind Kind
	// Of is the key of the figure that a Mean is divided by.
	Of string
}

// Values are the values of figures at one time, by key. A value that is not known is not in the map.
type Values map[string]float64

// The keys of the figures. CPU times are in seconds, so their rates are parts of one CPU. Conntrack is the part of the
// table that is in use.
const (
	Requests       = "requests"
	ServerErrors   = "requests-5xx"
	ClientErrors   = "requests-4xx"
	RequestSeconds = "request-seconds"
	RequestBytes   = "request-bytes"
	ResponseBytes  = "response-bytes"
	CPUGateway     = "cpu-gateway"
	BytesIn        = "bytes-in"
	BytesOut       = "bytes-out"
	Flows          = "flows"
	Drops          = "drops"
	CPUKernel      = "cpu-kernel"
	CPUProxy       = "cpu-proxy"
	Conntrack      = "conntrack"
)

// AddGateway adds the counters of a gateway.
func AddGateway(values Values, t metric.Totals) {
	if t.CPUSeconds > 0 { // 0 if the serving process is of a version that does not report it
		values[CPUGateway] = t.CPUSeconds
	}
	if t.Counted {
		values[Requests], values[ClientErrors], values[ServerErrors] = float64(t.Requests), float64(t.ClientErrors),
			float64(t.ServerErrors)
		values[RequestSeconds], values[RequestBytes], values[ResponseBytes] = t.Seconds, float64(t.Received),
			float64(t.Sent)
	}
}

// Gateway returns the figures of a gateway.
func Gateway() []Figure {
	return []Figure{{Key: Requests, Kind: Rate}, {Key: ServerErrors, Kind: Rate}, {Key: ClientErrors, Kind: Rate},
		{Key: RequestSeconds, Kind: Mean, Of: Requests}, {Key: RequestBytes, Kind: Rate},
		{Key: ResponseBytes, Kind: Rate}, {Key: CPUGateway, Kind: Rate}}
}

// Host returns the figures of a host, with those of its gateway.
func Host() []Figure {
	return append(Gateway(), Figure{Key: BytesIn, Kind: Rate}, Figure{Key: BytesOut, Kind: Rate},
		Figure{Key: Flows, Kind: Rate}, Figure{Key: Drops, Kind: Rate}, Figure{Key: CPUKernel, Kind: Rate},
		Figure{Key: CPUProxy, Kind: Rate}, Figure{Key: Conntrack})
}
