package nlutil

import (
	"fmt"
	"os"

	"fairlead/internal/kernel/netns"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Conn is a netlink socket for requests. It is safe for concurrent use.
type Conn struct {
	protocol int
	sockets  map[int]*nl.SocketHandle
}

// Open opens a netlink socket of the protocol (NETLINK_NETFILTER …) in the namespace.
func Open(ns *netns.Namespace, protocol int) (*Conn, error) {
	var socket *nl.NetlinkSocket
	err := ns.Do(func() (err error) {
		socket, err = nl.Subscribe(protocol)
		return os.NewSyscallError("socket", err)
	})
	if err != nil {
		return nil, fmt.Errorf("open netlink: %w", err)
	}
	return &Conn{protocol, map[int]*nl.SocketHandle{protocol: {Socket: socket}}}, nil
}

// Close closes the socket.
func (c *Conn) Close() { c.sockets[c.protocol].Close() }

// Request sends a request. It returns the kernel's answers without their headers.
func (c *Conn) Request(kind, flags int, body []byte) ([][]byte, error) {
	r := nl.NewNetlinkRequest(kind, flags)
	r.Sockets = c.sockets
	r.AddRawData(body)
	return r.Execute(c.protocol, 0)
}

// Dump requests all objects of a kind. It repeats a dump that a change has
// interrupted: see Retry.
func (c *Conn) Dump(kind int, body []byte) ([][]byte, error) {
	return Retry(func() ([][]byte, error) { return c.Request(kind, unix.NLM_F_DUMP, body) })
}
