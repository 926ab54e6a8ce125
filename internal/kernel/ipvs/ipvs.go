// Package ipvs is a client of the kernel's IP Virtual Server via generic netlink.
// It creates, changes, lists and removes virtual services and their destinations
// in one network namespace. It does not know which program a service belongs to.
//
// The messages are those of the kernel's header linux/ip_vs.h. This client always
// sends two attributes that other clients omit: a destination's address family
// (Linux 3.18; without it the kernel uses the service's) and the tunnel type
// (Linux 5.3; older kernels ignore it). It reads the 64-bit counters (Linux 4.1).
package ipvs

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/mdlayher/genetlink"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// timeout limits the wait for one answer of the kernel.
const timeout = 10 * time.Second

// NotSupportedError says that the kernel has no IPVS, or that its module is not
// loaded.
type NotSupportedError struct{ Err error }

// Error implements error. It names the module to load.
func (e *NotSupportedError) Error() string {
	return "the kernel has no IPVS: load the module ip_vs (modprobe ip_vs), or build the kernel with CONFIG_IP_VS"
}

// Unwrap returns the cause.
func (e *NotSupportedError) Unwrap() error { return e.Err }

// Conn is a connection to the IPVS of one network namespace. It is safe for
// concurrent use.
type Conn struct {
	c      *genetlink.Conn
	family uint16
}

// Open connects to the IPVS of the namespace that the file descriptor refers to.
// Returns *NotSupportedError if the kernel has no IPVS.
func Open(netns int) (*Conn, error) {
	c, err := genetlink.Dial(&netlink.Config{NetNS: netns})
	if err != nil {
		return nil, fmt.Errorf("open generic netlink: %w", err)
	}
	if err := c.SetDeadline(time.Now().Add(timeout)); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	family, err := c.GetFamily(familyName)
	if errors.Is(err, os.ErrNotExist) {
		err = &NotSupportedError{err}
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return &Conn{c, family.ID}, nil
}

// Close ends the connection.
func (c *Conn) Close() error { return c.c.Close() }

// AddService creates a virtual service. Returns unix.EEXIST if it already exists.
func (c *Conn) AddService(s Service) error { return s.explain(c.change(cmdNewService, s.full())) }

// SetService changes an existing virtual service.
func (c *Conn) SetService(s Service) error { return s.explain(c.change(cmdSetService, s.full())) }

// DelService removes a virtual service and its destinations. Returns unix.ESRCH if
// the service does not exist.
func (c *Conn) DelService(id ID) error { return c.change(cmdDelService, id.only()) }

// Services lists the virtual services.
func (c *Conn) Services() ([]Service, error) {
	messages, err := c.execute(cmdGetService, netlink.Dump, nil)
	if err != nil {
		return nil, err
	}
	return decodeServices(messages)
}

// AddDestination adds a destination to a service.
func (c *Conn) AddDestination(id ID, d Destination) error {
	return c.change(cmdNewDest, id.only(), d.full())
}

// SetDestination changes an existing destination of a service.
func (c *Conn) SetDestination(id ID, d Destination) error {
	return c.change(cmdSetDest, id.only(), d.full())
}

// DelDestination removes a destination from a service. Returns unix.ENOENT if the
// service does not have the destination.
func (c *Conn) DelDestination(id ID, d Destination) error {
	return c.change(cmdDelDest, id.only(), d.only())
}

// Destinations lists the destinations of a service. The list is empty if the
// service does not exist.
func (c *Conn) Destinations(id ID) ([]Destination, error) {
	body, err := encode(id.only())
	if err != nil {
		return nil, err
	}
	messages, err := c.execute(cmdGetDest, netlink.Dump, body)
	if err != nil {
		return nil, err
	}
	return decodeDestinations(messages, id)
}

// change sends a command and waits for the kernel's acknowledgement.
func (c *Conn) change(command uint8, parts ...part) error {
	body, err := encode(parts...)
	if err != nil {
		return err
	}
	_, err = c.execute(command, netlink.Acknowledge, body)
	return err
}

func (c *Conn) execute(command uint8, flags netlink.HeaderFlags, body []byte) ([]genetlink.Message, error) {
	if err := c.c.SetDeadline(time.Now().Add(timeout)); err != nil {
		return nil, err
	}
	m := genetlink.Message{Header: genetlink.Header{Command: command, Version: version}, Data: body}
	return c.c.Execute(m, c.family, netlink.Request|flags)
}

// explain adds the missing scheduler's module to the error ENOENT.
func (s Service) explain(err error) error {
	if !errors.Is(err, unix.ENOENT) {
		return err
	}
	return fmt.Errorf("the kernel has no scheduler %[1]s: load the module ip_vs_%[1]s (modprobe ip_vs_%[1]s): %[2]w",
		s.Scheduler, err)
}
