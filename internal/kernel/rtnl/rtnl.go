// Package rtnl reads links, addresses, routes and neighbours with rtnetlink(7).
// Its subpackages change them.
package rtnl

import (
	"encoding/json"
	"fmt"
	"net"
	"strings"

	"fairlead/internal/kernel/netns"
	"fairlead/internal/kernel/nlutil"
	"fairlead/internal/kernel/rtnl/handles"
	"fairlead/internal/plan"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Reader reads links, addresses, routes and neighbours, and gives no handle to
// others: it has no power to change them. Its methods are safe for concurrent use,
// except Release.
type Reader struct {
	ns      *netns.Namespace
	handles *handles.Cache
	seen    dumpCache
}

// New returns a Reader that uses the handles.
func New(c *handles.Cache) *Reader { return &Reader{ns: c.Host(), handles: c} }

// Copy returns a Reader for use while another goroutine applies a plan. It has its
// own handles into sandboxes and its own dump cache, so that the Release of one
// Reader does not close the handles of the other. Both share the handle of the
// host's namespace.
func (h *Reader) Copy() (*Reader, error) {
	own, err := h.handles.Copy()
	if err != nil {
		return nil, err
	}
	return New(own), nil
}

// Release closes the handles into sandboxes, which would keep a dead sandbox's
// namespace alive, and clears the cache. Only the goroutine that applies plans may
// call it. Concurrent readers use a Copy.
func (h *Reader) Release() {
	h.handles.Release()
	h.seen.forget()
}

// Netns returns the host's namespace.
func (h *Reader) Netns() *netns.Namespace { return h.ns }

// LinkByName returns the link with that name in the namespace at path; "" means the
// host's.
func (h *Reader) LinkByName(path, name string) (netlink.Link, error) {
	_, link, err := h.handles.Link(path, name)
	return link, err
}

// LinkByIndex returns the link with the index in the namespace at path; "" means
// the host's.
func (h *Reader) LinkByIndex(path string, index int) (netlink.Link, error) {
	handle, err := h.handles.At(path)
	if err != nil {
		return nil, err
	}
	return handle.LinkByIndex(index)
}

// ParseMAC parses a hardware address; the empty text gives nil.
func ParseMAC(s string) (net.HardwareAddr, error) {
	if s == "" {
		return nil, nil
	}
	return net.ParseMAC(s)
}

// Owner returns the endpoint or device in the alias of a Fairlead link, or "".
func Owner(l netlink.Link) string {
	if text, marked := strings.CutPrefix(l.Attrs().Alias, plan.DeviceMark); marked {
		var saved struct{ Device, Name string }
		if json.Unmarshal([]byte(text), &saved) == nil && saved.Device != "" && saved.Name != "" {
			return saved.Device
		}
	}
	if !Ours(l) {
		return ""
	}
	return strings.TrimPrefix(l.Attrs().Alias, plan.Mark+":")
}

// ListLinks returns the links in the namespace at path; "" means the host's.
func (h *Reader) ListLinks(path string) ([]netlink.Link, error) {
	return dump(h, path, "links", (*netlink.Handle).LinkList)
}

// listAddresses returns the addresses of a family in the namespace at path; "" means the host's.
func listAddresses(h *Reader, path string, family int) ([]netlink.Addr, error) {
	return dump(h, path, "addresses",
		func(handle *netlink.Handle) ([]netlink.Addr, error) { return handle.AddrList(nil, family) })
}

// dump lists objects in the namespace at path; "" means the host's. what they are is for the error. If the error is
// netlink.ErrDumpInterrupted, some may be missing.
func dump[T any](h *Reader, path, what string, list func(*netlink.Handle) ([]T, error)) ([]T, error) {
	handle, err := h.handles.At(path)
	if err != nil {
		return nil, err
	}
	all, err := nlutil.Retry(func() ([]T, error) { return list(handle) })
	if err != nil {
		err = fmt.Errorf("list %s: %w", what, err)
	}
	return all, err
}

// Indices maps the names of the host's links to their indices.
func (h *Reader) Indices() (map[string]uint32, error) {
	list, err := h.ListLinks("")
	if err != nil {
		return nil, err
	}
	links := map[string]uint32{}
	for _, l := range list {
		links[l.Attrs().Name] = uint32(l.Attrs().Index)
	}
	return links, nil
}

// LinkName returns the name of the host's link with the index, or "" if there is
// none.
func (h *Reader) LinkName(index uint32) string {
	link, err := h.LinkByIndex("", int(index))
	if err != nil {
		return ""
	}
	return link.Attrs().Name
}

// LinkNames maps the indices of the host's links to their names.
func (h *Reader) LinkNames() (map[uint32]string, error) {
	links, err := h.Indices()
	names := make(map[uint32]string, len(links))
	for name, index := range links {
		names[index] = name
	}
	return names, err
}

// LinkBytes returns the sum of the bytes that a link has received and sent, in the
// namespace at path; "" means the host's.
func (h *Reader) LinkBytes(path, name string) (uint64, error) {
	link, err := h.LinkByName(path, name)
	if err != nil {
		return 0, fmt.Errorf("read counters of link %s: %w", name, err)
	}
	s := link.Attrs().Statistics
	return s.RxBytes + s.TxBytes, nil
}

// NewLinkGroup is the group (`ip link … group`) of a new link of Fairlead's that
// has no alias yet. Linux accepts a group in the request that creates a link, but
// an alias only in a later one. If Fairlead is killed in between, the next process
// recognises the link by its group.
const NewLinkGroup = 0x66616972

// ShaperHandle is plan.ShaperHandle as a number.
const ShaperHandle = 0xfa1e << 16

// Ours reports whether Fairlead has created the link.
func Ours(l netlink.Link) bool {
	a := l.Attrs()
	return strings.HasPrefix(a.Alias, plan.Mark+":") || a.Group == NewLinkGroup
}

// KnownAs reports whether the namespace at path has that id in the host's
// namespace. Interface indices alone are ambiguous, because they repeat in other
// namespaces. The id -1 stands for the host's own namespace.
func (h *Reader) KnownAs(path string, id int) bool {
	ns, err := h.ns.Open(path)
	if err != nil {
		return false
	}
	defer ns.Close()
	known, err := h.IDOf(ns)
	return err == nil && known == id
}

// IsUp reports whether the link is administratively up.
func IsUp(l netlink.Link) bool { return l.Attrs().RawFlags&unix.IFF_UP != 0 }

// ReadPort returns the bridge that the link in the namespace at path is a port of,
// and the port's hairpin mode.
func (h *Reader) ReadPort(path string, link netlink.Link) (master string, hairpin bool) {
	if link.Attrs().MasterIndex == 0 {
		return "", false
	}
	if m, err := h.LinkByIndex(path, link.Attrs().MasterIndex); err == nil {
		master = m.Attrs().Name
	}
	hairpin, _ = h.hairpin(link.Attrs().Index) // an unreadable mode is set again
	return master, hairpin
}
