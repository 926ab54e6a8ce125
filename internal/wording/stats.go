package wording

import (
	"fmt"

	"fairlead/internal/api"
	"fairlead/internal/model"
	"fairlead/internal/syntax"
)

// PublishText returns the name of a publish in the table.
func PublishText(p api.PublishStats) string {
	return fmt.Sprintf("%s%s/%s", syntax.FormatHost(p.Publish), p.HostPorts, p.Proto)
}

// StatsReal writes the address of a real server, without the port if that is the client's.
func StatsReal(r api.RealStats) string {
	return model.RealServer{Address: r.Real.Addr(), Port: r.Real.Port()}.String()
}

// TrafficOrDash writes bytes and packets, or a dash if they are not counted.
func TrafficOrDash(bytes, packets *uint64) string {
	if bytes == nil || packets == nil {
		return "-"
	}
	return Traffic(*bytes, *packets)
}
