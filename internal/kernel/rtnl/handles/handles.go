// Package handles keeps the rtnetlink(7) handles of a host and of its sandboxes. A
// handle has the power to change the namespace: readers do not give it to others.
package handles

import (
	"fmt"
	"sync"

	"fairlead/internal/kernel/netns"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Cache opens handles and keeps them open. Its methods are safe for concurrent use,
// except Release and Close.
type Cache struct {
	ns *netns.Namespace

	mu   sync.Mutex
	open map[string]*netlink.Handle
	// entries is the socket of Entries; nil if it is not open.
	entries *nl.SocketHandle
}

// New returns a Cache for the host with the namespace, which must stay open.
func New(ns *netns.Namespace) *Cache { return &Cache{ns: ns, open: map[string]*netlink.Handle{}} }

// Host returns the host's namespace.
func (c *Cache) Host() *netns.Namespace { return c.ns }

// Copy returns a Cache that shares only the handle of the host's namespace: Release
// the copy, but do not close it.
func (c *Cache) Copy() (*Cache, error) {
	host, err := c.At("")
	if err != nil {
		return nil, err
	}
	return &Cache{ns: c.ns, open: map[string]*netlink.Handle{"": host}}, nil
}

// At returns an rtnetlink handle for the namespace at path; "" means the host's.
func (c *Cache) At(path string) (*netlink.Handle, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if handle, ok := c.open[path]; ok {
		return handle, nil
	}
	ns, err := c.ns.Open(path)
	if err != nil {
		return nil, err
	}
	defer ns.Close()
	handle, err := ns.Netlink(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open netlink in %s: %w", path, err)
	}
	c.open[path] = handle
	return handle, nil
}

// Link returns the link with that name in a namespace, and the namespace's handle.
func (c *Cache) Link(netns, name string) (*netlink.Handle, netlink.Link, error) {
	handle, err := c.At(netns)
	if err != nil {
		return nil, nil, err
	}
	link, err := handle.LinkByName(name)
	return handle, link, err
}

// Entries returns a socket in the host's namespace for requests that the netlink library does not support, or that
// are many: it stays open, unlike the library's own. It is valid until Release.
func (c *Cache) Entries() (*nl.SocketHandle, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.entries != nil {
		return c.entries, nil
	}
	var socket *nl.NetlinkSocket
	err := c.ns.Do(func() (err error) {
		socket, err = nl.Subscribe(unix.NETLINK_ROUTE)
		return err
	})
	if err == nil {
		err = socket.SetReceiveTimeout(&nl.SocketTimeoutTv)
	}
	if err != nil {
		return nil, fmt.Errorf("open netlink: %w", err)
	}
	c.entries = &nl.SocketHandle{Socket: socket}
	return c.entries, nil
}

// CloseAt closes the handle of the namespace at path.
func (c *Cache) CloseAt(path string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if handle, open := c.open[path]; open {
		handle.Close()
		delete(c.open, path)
	}
}

// Release closes the handles into sandboxes, which would keep a dead sandbox's
// namespace alive, and the socket of Entries.
func (c *Cache) Release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.entries != nil {
		c.entries.Close()
		c.entries = nil
	}
	for path, handle := range c.open {
		if path != "" { // the host's handle may be in use and keeps no sandbox alive
			handle.Close()
			delete(c.open, path)
		}
	}
}

// Close closes every handle.
func (c *Cache) Close() {
	c.Release()
	if host := c.open[""]; host != nil {
		host.Close()
	}
}
