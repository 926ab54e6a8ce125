package kernel

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// NoSandbox is the id of a namespace that the host has none for.
const NoSandbox = -1

// Sandbox is what the daemon must know of a sandbox before it attaches it.
type Sandbox struct {
	// Namespace tells the namespace from any other of this boot.
	Namespace string
	// ID is what the host calls the namespace (RTM_GETNSID): by it the kernel
	// tells of its end.
	ID int
	// Links are the names of the interfaces inside.
	Links []string
	// Default4 and Default6 say that a default route of the family is there.
	Default4, Default6 bool
}

// DescribeSandbox looks at the sandbox at path, and gives its namespace an id if the host
// has none for it yet.
func (h *Host) DescribeSandbox(path string) (Sandbox, error) {
	reader, err := h.readOnly()
	if err != nil {
		return Sandbox{}, err
	}
	defer reader.Release()
	s, err := reader.describeSandbox(path)
	if err != nil {
		return s, fmt.Errorf("look into sandbox %s: %w", path, err)
	}
	return s, nil
}

func (h *Host) describeSandbox(path string) (Sandbox, error) {
	ns, err := OpenNetns(path)
	if err != nil {
		return Sandbox{}, err
	}
	defer ns.Close()
	s := Sandbox{}
	if s.Namespace, err = ns.identity(); err != nil {
		return s, err
	}
	if s.ID, err = h.nameNamespace(ns); err != nil {
		return s, err
	}
	handle, err := h.at(path)
	if err != nil {
		return s, err
	}
	links, err := retry(handle.LinkList)
	if err != nil {
		return s, err
	}
	for _, l := range links {
		s.Links = append(s.Links, l.Attrs().Name)
	}
	routes, err := retry(func() ([]netlink.Route, error) { return handle.RouteList(nil, unix.AF_UNSPEC) })
	for _, r := range routes {
		if r.Dst == nil || ones(r.Dst.Mask) == 0 {
			v4 := r.Family == unix.AF_INET
			s.Default4, s.Default6 = s.Default4 || v4, s.Default6 || !v4
		}
	}
	return s, err
}

func ones(mask []byte) int { return toPrefix(make([]byte, len(mask)), mask).Bits() }

// Identify tells the namespace at path from any other of this boot. The error
// is os.ErrNotExist when there is none.
func Identify(path string) (string, error) {
	ns, err := OpenNetns(path)
	if err != nil {
		return "", err
	}
	defer ns.Close()
	return ns.identity()
}

// identity is the namespace's cookie, which is never given twice; before
// Linux 5.14 its inode, which the next namespace may get.
func (n *Netns) identity() (string, error) {
	cookie, err := (&Host{ns: n}).cookie()
	if err == nil {
		return fmt.Sprintf("cookie %x", cookie), nil
	}
	if !errors.Is(err, unix.ENOPROTOOPT) {
		return "", err
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(n.file.Fd()), &st); err != nil {
		return "", err
	}
	return fmt.Sprintf("inode %x:%x", st.Dev, st.Ino), nil
}

// nameNamespace gives the namespace an id in the host's, or finds the one that
// it has.
func (h *Host) nameNamespace(ns *Netns) (int, error) {
	handle, err := h.at("")
	if err != nil {
		return NoSandbox, err
	}
	fd := int(ns.File().Fd())
	// -1 lets the kernel choose.
	if err := handle.SetNetNsIdByFd(fd, -1); err != nil && !errors.Is(err, unix.EEXIST) {
		return NoSandbox, fmt.Errorf("give the namespace an id: %w", err)
	}
	id, err := handle.GetNetNsIdByFd(fd)
	if err != nil {
		return NoSandbox, fmt.Errorf("read the namespace's id: %w", err)
	}
	return id, nil
}

// WatchSandboxes returns the ids of namespaces as they end, and NoSandbox when
// the kernel had more to tell than we could read. It ends with ctx.
func (h *Host) WatchSandboxes(ctx context.Context) (<-chan int, error) {
	var socket *nl.NetlinkSocket
	err := h.ns.Do(func() (err error) {
		socket, err = nl.Subscribe(unix.NETLINK_ROUTE, unix.RTNLGRP_NSID)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("watch network namespaces: %w", err)
	}
	context.AfterFunc(ctx, socket.Close)
	gone := make(chan int)
	go func() {
		defer close(gone)
		for {
			ids, err := endedNamespaces(socket)
			if err != nil && !errors.Is(err, unix.ENOBUFS) {
				return // closed
			}
			if err != nil {
				ids = []int{NoSandbox}
			}
			for _, id := range ids {
				select {
				case gone <- id:
				case <-ctx.Done():
					return
				}
			}
		}
	}()
	return gone, nil
}

// rtgen is the length of a struct rtgenmsg, padded as its attributes want it.
const rtgen = 4

// endedNamespaces waits for messages and returns the ids that went.
func endedNamespaces(socket *nl.NetlinkSocket) ([]int, error) {
	messages, _, err := socket.Receive()
	if err != nil {
		return nil, err
	}
	var ids []int
	for _, m := range messages {
		if m.Header.Type != unix.RTM_DELNSID || len(m.Data) < rtgen {
			continue
		}
		attrs, err := nl.ParseRouteAttr(m.Data[rtgen:])
		if err != nil {
			return nil, err
		}
		i := slices.IndexFunc(attrs, func(a syscall.NetlinkRouteAttr) bool { return a.Attr.Type == netlink.NETNSA_NSID })
		if i >= 0 && len(attrs[i].Value) >= 4 {
			ids = append(ids, int(int32(nl.NativeEndian().Uint32(attrs[i].Value))))
		}
	}
	return ids, nil
}
