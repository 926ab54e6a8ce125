package proxy

import (
	"errors"
	"net/netip"
	"syscall"

	"fairlead/internal/model"
)

// request is a request of a parent or a successor. At most one of Set, Keep and
// Curtail is set; without them, Ask says what is requested.
type request struct {
	ID  uint64  `json:"id"`
	Set *Config `json:"set,omitempty"`
	// Keep makes the proxy outlive its parents.
	Keep *keep `json:"keep,omitempty"`
	// Curtail makes a proxy with a successor end the connections of all other
	// listeners.
	Curtail *Config  `json:"curtail,omitempty"`
	Ask     question `json:"ask,omitempty"`
}

// keep makes a proxy outlive its parents.
type keep struct {
	// Socket is the path where it listens for the next parent.
	Socket string `json:"socket"`
	// TakeOver makes it the successor of the proxy that listens there.
	TakeOver bool `json:"takeOver,omitempty"`
}

// question names a request without parameters. Proxies of different versions
// send them to each other: the meaning of a question never changes, and an
// unknown question is answered with a fault.
type question string

const (
	// askStats requests the counters.
	askStats question = ""
	// askEach requests the counters of each listener.
	askEach question = "each"
	// askConfig requests the configuration.
	askConfig question = "held"
	// askSockets requests copies of all sockets; see handover.go.
	askSockets question = "sockets"
	// askLeave makes a proxy close its copies and keep only its open
	// connections.
	askLeave question = "leave"
)

// response answers the request of the same ID.
type response struct {
	ID     uint64           `json:"id"`
	Stats  model.ProxyStats `json:"stats,omitzero"`
	Each   []ListenerStats  `json:"each,omitempty"`
	Config *Config          `json:"held,omitempty"`
	Bind   *bindFault       `json:"bind,omitempty"`
	Fault  string           `json:"fault,omitempty"`
	// Left says that the proxy has a successor, which must get the request instead.
	Left bool `json:"left,omitempty"`
}

// bindFault is a BindError in a response.
type bindFault struct {
	Proto model.Proto    `json:"proto"`
	Addr  netip.AddrPort `json:"addr"`
	Errno syscall.Errno  `json:"errno"`
}

// fail writes err into the response.
func (r *response) fail(err error) {
	var bind *BindError
	var errno syscall.Errno
	switch {
	case err == nil:
	case errors.As(err, &bind) && errors.As(bind.Err, &errno):
		r.Bind = &bindFault{bind.Proto, bind.Addr, errno}
	default:
		r.Fault = err.Error()
	}
}

// err returns the error in the response.
func (r response) err() error {
	switch {
	case r.Left:
		return errStopped
	case r.Bind != nil:
		return &BindError{r.Bind.Proto, r.Bind.Addr, r.Bind.Errno}
	case r.Fault != "":
		return errors.New(r.Fault)
	}
	return nil
}
