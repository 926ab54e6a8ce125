package proxy

import (
	"errors"
	"net/netip"
	"syscall"

	"fairlead/internal/model"
)

// request is what the parent asks: to hold Set, or (nil) for the counters.
type request struct {
	ID  uint64  `json:"id"`
	Set *Config `json:"set,omitempty"`
}

// response answers the request of the same ID.
type response struct {
	ID    uint64     `json:"id"`
	Stats Stats      `json:"stats,omitzero"`
	Bind  *bindFault `json:"bind,omitempty"`
	Fault string     `json:"fault,omitempty"`
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
	case r.Bind != nil:
		return &BindError{r.Bind.Proto, r.Bind.Addr, r.Bind.Errno}
	case r.Fault != "":
		return errors.New(r.Fault)
	}
	return nil
}
