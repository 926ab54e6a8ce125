package proxy

import (
	"errors"
	"net/netip"
	"syscall"

	"fairlead/internal/model"
)

// request is what a parent, or a successor, asks: to hold Set, to carry out
// an order, or else for what Ask says.
type request struct {
	ID  uint64  `json:"id"`
	Set *Config `json:"set,omitempty"`
	// Keep makes the proxy outlive its parents.
	Keep *keep `json:"keep,omitempty"`
	// Curtail makes a proxy that has left end what is not of these ports.
	Curtail *Config  `json:"curtail,omitempty"`
	Ask     question `json:"ask,omitempty"`
}

// keep says how a proxy outlives its parents.
type keep struct {
	// Socket is where it listens for the next one.
	Socket string `json:"socket"`
	// TakeOver makes it the successor of the proxy that listens there.
	TakeOver bool `json:"takeOver,omitempty"`
}

// question is what is asked for, or an order without particulars. Proxies of
// different versions put them to each other: what one means never changes, and
// one that is not understood is answered by a fault.
type question string

const (
	// askStats is for the counters.
	askStats question = ""
	// askEach is for the counters of each listener.
	askEach question = "each"
	// askConfig is for what the proxy holds.
	askConfig question = "held"
	// askSockets is for copies of all sockets; see handover.go.
	askSockets question = "sockets"
	// askLeave makes a proxy close its copies and go on with nothing but the
	// connections that it has.
	askLeave question = "leave"
)

// response answers the request of the same ID.
type response struct {
	ID     uint64          `json:"id"`
	Stats  Stats           `json:"stats,omitzero"`
	Each   []ListenerStats `json:"each,omitempty"`
	Config *Config         `json:"held,omitempty"`
	Bind   *bindFault      `json:"bind,omitempty"`
	Fault  string          `json:"fault,omitempty"`
	// Left says that the proxy has a successor, and what was asked is for that.
	Left bool `json:"left,omitempty"`
}

// bindFault is a BindError on its way to the parent.
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

// err reads the error back.
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
