package model

import (
	"slices"
	"time"
)

// CheckType names a health checker.
type CheckType string

// The health checkers. The empty one is CheckNone: real servers are assumed to be
// up.
const (
	CheckNone   CheckType = "none"
	CheckTCP    CheckType = "tcp"
	CheckHTTP   CheckType = "http"
	CheckHTTPS  CheckType = "https"
	CheckGRPC   CheckType = "grpc"
	CheckDNS    CheckType = "dns"
	CheckUDP    CheckType = "udp"
	CheckExec   CheckType = "exec"
	CheckDocker CheckType = "docker"
)

// CheckTypes returns the names of all health checkers, CheckNone last. Package
// health has a checker for each of the others.
func CheckTypes() []CheckType {
	return []CheckType{
		CheckTCP,
		CheckHTTP,
		CheckHTTPS,
		CheckGRPC,
		CheckDNS,
		CheckUDP,
		CheckExec,
		CheckDocker,
		CheckNone,
	}
}

// Initial is the state of a real server before its first check ends.
type Initial string

// The initial states, as in HAProxy. If empty, servers of a new service are up, and
// servers that are added to a service later are down.
const (
	InitialUp   Initial = "up"
	InitialDown Initial = "down"
)

// Check configures the health checks of a virtual service's real servers. A number
// of 0 means the default, which the comments give.
type Check struct {
	Type CheckType `json:"type,omitempty"`
	// Port to check. Default: the real server's port.
	Port uint16 `json:"port,omitempty"`
	// Interval between checks. Default: 2 s. Fast is the interval while the state
	// is changing. Default: Interval, or a quarter of Timeout while a check is
	// unanswered. Down is the interval while the server is down. Default: Interval.
	Interval time.Duration `json:"interval,omitempty"`
	Fast     time.Duration `json:"fast,omitempty"`
	Down     time.Duration `json:"down,omitempty"`
	// Timeout of a check. Default: Interval, but at most 5 s.
	Timeout time.Duration `json:"timeout,omitempty"`
	// Rise is the number of consecutive successful checks that make a server up.
	// Default: 2. Fall is the number of consecutive failed checks that make it down.
	// Default: 3.
	Rise int `json:"rise,omitempty"`
	Fall int `json:"fall,omitempty"`
	// Jitter varies the interval randomly by this percentage. Default: 10; -1 means
	// none.
	Jitter  int     `json:"jitter,omitempty"`
	Initial Initial `json:"initial,omitempty"`
	// SlowStart is the time during which the weight of a server grows to its full
	// value after a failure.
	SlowStart time.Duration `json:"slowStart,omitempty"`

	// Method, Path, Host, Status and Body configure http and https checks. The
	// defaults are GET, /, the server's address, and the status codes 200-399
	// (codes and ranges, separated by commas). Body is a regular expression that
	// must match the first 64 KiB of the body; empty accepts any body.
	Method string `json:"method,omitempty"`
	Path   string `json:"path,omitempty"`
	Host   string `json:"host,omitempty"`
	Status string `json:"status,omitempty"`
	Body   string `json:"body,omitempty"`
	// TLS uses TLS for a tcp or grpc check. TLSName is the name for which the
	// server's certificate must be valid; if empty, the certificate is not
	// verified. Expiry fails the check if the certificate expires within this time.
	TLS     bool          `json:"tls,omitempty"`
	TLSName string        `json:"tlsName,omitempty"`
	Expiry  time.Duration `json:"expiry,omitempty"`
	// Service is the service name in a gRPC health check. Empty asks for the server
	// as a whole.
	Service string `json:"service,omitempty"`
	// Query is the name in a DNS query. Record is the record type. Default: A.
	Query  string `json:"query,omitempty"`
	Record string `json:"record,omitempty"`
	// Send is the payload of a udp or tcp check. Expect is a regular expression
	// that must match the answer. Without Expect, a udp check fails only if the
	// server answers with ICMP port unreachable.
	Send   string `json:"send,omitempty"`
	Expect string `json:"expect,omitempty"`
	// Command is the program of an exec check. Its last arguments are the address
	// and the port; exit status 0 means that the server is healthy.
	Command []string `json:"command,omitempty"`
	// Agent is the port of an agent on the real server that reports the desired
	// weight in HAProxy's protocol (agent-check). 0 means none.
	Agent uint16 `json:"agent,omitempty"`
	// Passive marks a real server as down if clients' connections to it fail.
	Passive bool `json:"passive,omitempty"`
}

// Equal reports whether both checks are equal.
func (c Check) Equal(o Check) bool {
	return c.Type == o.Type && c.Port == o.Port && c.Interval == o.Interval && c.Fast == o.Fast && c.Down == o.Down &&
		c.Timeout == o.Timeout && c.Rise == o.Rise && c.Fall == o.Fall && c.Jitter == o.Jitter &&
		c.Initial == o.Initial && c.SlowStart == o.SlowStart && c.Method == o.Method && c.Path == o.Path &&
		c.Host == o.Host && c.Status == o.Status && c.Body == o.Body && c.TLS == o.TLS && c.TLSName == o.TLSName &&
		c.Expiry == o.Expiry && c.Service == o.Service && c.Query == o.Query && c.Record == o.Record &&
		c.Send == o.Send && c.Expect == o.Expect && c.Agent == o.Agent && c.Passive == o.Passive &&
		slices.Equal(c.Command, o.Command)
}

// IsZero reports whether no check is configured.
func (c Check) IsZero() bool { return c.Equal(Check{}) }

// Checks reports whether real servers are checked at all.
func (c Check) Checks() bool { return c.Type != "" && c.Type != CheckNone }
