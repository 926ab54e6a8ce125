package model

import (
	"slices"
	"time"
)

// CheckType names a health checker.
type CheckType string

// The checkers; the empty one is CheckNone: real servers are taken for up.
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

// Initial is what a real server is taken for until its first check is done.
type Initial string

// The initial states, as HAProxy has them; the empty one is InitialDown for
// one that comes to a service later, and InitialUp for those of a service that
// is new.
const (
	InitialUp   Initial = "up"
	InitialDown Initial = "down"
)

// Check says how the real servers of a virtual service are checked. Where a
// number is 0, the default is meant; the comments give it.
type Check struct {
	Type CheckType `json:"type,omitempty"`
	// Port to check, the real server's own by default.
	Port uint16 `json:"port,omitempty"`
	// Interval between checks: 2 s. Fast is that while a state is changing, the
	// Interval by default, and while a check is unanswered, a quarter of the
	// Timeout; Down that while the server is down, the Interval.
	Interval time.Duration `json:"interval,omitempty"`
	Fast     time.Duration `json:"fast,omitempty"`
	Down     time.Duration `json:"down,omitempty"`
	// Timeout of a check: the Interval, at most 5 s.
	Timeout time.Duration `json:"timeout,omitempty"`
	// Rise checks in a row that succeed make a server up: 2. Fall that fail make
	// it down: 3.
	Rise int `json:"rise,omitempty"`
	Fall int `json:"fall,omitempty"`
	// Jitter spreads checks by so many percent of the interval: 10; -1 for none.
	Jitter  int     `json:"jitter,omitempty"`
	Initial Initial `json:"initial,omitempty"`
	// SlowStart is how long the weight of a server grows after a failure.
	SlowStart time.Duration `json:"slowStart,omitempty"`

	// Method, Path, Host, Status and Body are of http and https: GET, /, the
	// server's address, 200-399 (codes and ranges, with commas), and a regular
	// expression that the first 64 KiB of the body must fit, if any.
	Method string `json:"method,omitempty"`
	Path   string `json:"path,omitempty"`
	Host   string `json:"host,omitempty"`
	Status string `json:"status,omitempty"`
	Body   string `json:"body,omitempty"`
	// TLS wraps a tcp or grpc check. TLSName is the name that the certificate must
	// be of; empty does not look who has signed it. Expiry fails a certificate
	// that has less left.
	TLS     bool          `json:"tls,omitempty"`
	TLSName string        `json:"tlsName,omitempty"`
	Expiry  time.Duration `json:"expiry,omitempty"`
	// Service is the name that a gRPC server is asked about: empty for the
	// server as a whole.
	Service string `json:"service,omitempty"`
	// Query is the name that a DNS server is asked for, and Record the type, A by
	// default.
	Query  string `json:"query,omitempty"`
	Record string `json:"record,omitempty"`
	// Send is what a udp or tcp check sends, and Expect a regular expression that
	// the answer must fit. Without Expect a udp check only fails when the port is
	// told to be closed.
	Send   string `json:"send,omitempty"`
	Expect string `json:"expect,omitempty"`
	// Command is what exec runs: it gets the address and the port as its last
	// arguments, and exits with 0 if the server is well.
	Command []string `json:"command,omitempty"`
	// Agent is the port of an agent on the real server that says what weight it
	// wants, in HAProxy's words (agent-check); 0 for none.
	Agent uint16 `json:"agent,omitempty"`
	// Passive takes a real server out when clients' connections to it fail.
	Passive bool `json:"passive,omitempty"`
}

// Equal reports whether nothing differs.
func (c Check) Equal(o Check) bool {
	return c.Type == o.Type && c.Port == o.Port && c.Interval == o.Interval && c.Fast == o.Fast && c.Down == o.Down &&
		c.Timeout == o.Timeout && c.Rise == o.Rise && c.Fall == o.Fall && c.Jitter == o.Jitter &&
		c.Initial == o.Initial && c.SlowStart == o.SlowStart && c.Method == o.Method && c.Path == o.Path &&
		c.Host == o.Host && c.Status == o.Status && c.Body == o.Body && c.TLS == o.TLS && c.TLSName == o.TLSName &&
		c.Expiry == o.Expiry && c.Service == o.Service && c.Query == o.Query && c.Record == o.Record &&
		c.Send == o.Send && c.Expect == o.Expect && c.Agent == o.Agent && c.Passive == o.Passive &&
		slices.Equal(c.Command, o.Command)
}

// IsZero reports whether nothing is asked for.
func (c Check) IsZero() bool { return c.Equal(Check{}) }

// Checks reports whether anything is checked.
func (c Check) Checks() bool { return c.Type != "" && c.Type != CheckNone }
