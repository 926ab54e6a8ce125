package serving

import (
	"errors"

	"fairlead/internal/gateway"
	"fairlead/internal/gateway/metric"
	"fairlead/internal/gateway/shown"
	"fairlead/internal/gateway/status"
	"fairlead/internal/gateway/view"
	model "fairlead/internal/model/gateway"
)

// The messages are an interface between versions of the program: a field keeps its
// meaning, and an unknown request is answered with a fault.

// request is what a controlling process sends. At most one of Start, Apply and Explain is
// set; without them, Ask says what is requested.
type request struct {
	ID      uint64    `json:"id"`
	Start   *start    `json:"start,omitempty"`
	Apply   *change   `json:"apply,omitempty"`
	Explain *question `json:"explain,omitempty"`
	Ask     ask       `json:"ask,omitempty"`
	// Beats says that responses with Busy may precede the answer. An earlier version ignores it.
	Beats bool `json:"beats,omitempty"`
	// Wrong limits askRaw to what needs attention. An earlier version ignores it.
	Wrong bool `json:"wrong,omitempty"`
}

// start is the first request.
type start struct {
	Static model.Static `json:"static"`
	// Sockets names the descriptors that come with the message, in this order.
	Sockets []socketName `json:"sockets"`
	// Log says that the next descriptor is the file of the access log.
	Log bool `json:"log,omitempty"`
	// Control says that the last descriptor listens for the next controlling process,
	// whose user is Owner or root.
	Control bool   `json:"control,omitempty"`
	Owner   uint32 `json:"owner,omitempty"`
	Config  change `json:"config"`
	// Handover is from the process that this one replaces.
	Handover gateway.Handover `json:"handover"`
}

// socketName names a socket by its entry point.
type socketName struct {
	Entry string `json:"entry"`
	UDP   bool   `json:"udp,omitempty"`
}

// question is a request of a client that is only explained.
type question struct {
	Entry  string `json:"entry"`
	Method string `json:"method"`
	URL    string `json:"url"`
}

// ask names a request without parameters.
type ask string

const (
	// askSelf requests what the process is: response.Self.
	askSelf ask = "self"
	// askKeep lets the process continue without a controlling process.
	askKeep ask = "keep"
	// askHandover requests what a successor needs: response.Handover, and copies of the
	// sockets.
	askHandover ask = "handover"
	// askLeave makes the process complete its connections and end.
	askLeave ask = "leave"
	// askStop makes the process end within the grace time.
	askStop ask = "stop"
	// askLog replaces the file of the access log by the descriptor of the message.
	askLog ask = "log"
	// askRaw requests all objects with their states: response.Raw.
	askRaw ask = "raw"
	// askTotals requests the counters of all requests: response.Totals.
	askTotals ask = "totals"
)

// response answers the request of the same ID.
type response struct {
	ID uint64 `json:"id"`
	// Busy says that the process works on the request and has made progress: the answer follows.
	Busy     bool              `json:"busy,omitempty"`
	Fault    string            `json:"fault,omitempty"`
	Statuses []status.Status   `json:"statuses,omitempty"`
	Self     *self             `json:"self,omitempty"`
	Handover *gateway.Handover `json:"handover,omitempty"`
	// Sockets names the descriptors that come with the message.
	Sockets []socketName   `json:"sockets,omitempty"`
	Answer  *shown.Answer  `json:"answer,omitempty"`
	Raw     *view.RawData  `json:"raw,omitempty"`
	Totals  *metric.Totals `json:"totals,omitempty"`
}

func (r response) err() error {
	if r.Fault != "" {
		return errors.New(r.Fault)
	}
	return nil
}

// self is what a controlling process must know of a process that another has started.
type self struct {
	// Static is the JSON form of the static settings.
	Static string `json:"static"`
	// Began is when the process began, in nanoseconds since 1970.
	Began int64 `json:"began"`
	// Left says that the process completes its last connections.
	Left bool `json:"left,omitempty"`
}
