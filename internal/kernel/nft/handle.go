// Package nft changes and reads nftables: Fairlead's tables, and the rules of other
// programs.
package nft

import (
	"errors"
	"fmt"
	"sync"

	"fairlead/internal/kernel/netns"
	"fairlead/internal/kernel/nlutil"
	"fairlead/internal/kernel/rtnl"
	"fairlead/internal/plan"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Handle is a connection to the nftables of a host. It is safe for concurrent use.
type Handle struct {
	ns   *netns.Namespace
	rtnl *rtnl.Reader

	mu sync.Mutex
	// nft is nil on a kernel without nftables; noNft is then the reason.
	nft   *reader
	noNft error
	// nftConn is the socket of transactions, and nftPort its netlink port. With it the
	// kernel marks the changes that this process has made.
	nftPort uint32
	nftConn *netlink.Conn
	// seenIPVSTable is the content of the table for IPVS, cached while one
	// observation runs.
	seenIPVSTable map[plan.Object]bool
}

// Open connects to the nftables of the reader's host. A kernel without nftables is
// not an error: see Available.
func Open(r *rtnl.Reader) (*Handle, error) {
	h := &Handle{ns: r.Netns(), rtnl: r}
	if h.ns.Unprivileged() {
		h.noNft = errors.New("firewall rules: root is needed to read them")
		return h, nil
	}
	conn, err := netlink.Dial(unix.NETLINK_NETFILTER, &netlink.Config{NetNS: int(h.ns.File().Fd())})
	if errors.Is(err, unix.EPROTONOSUPPORT) {
		h.noNft = fmt.Errorf("the kernel has no nftables: %w", err)
		return h, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open nftables: %w", err)
	}
	h.nftConn = conn
	if h.nftPort, err = portOf(conn); err == nil {
		err = largeBuffers(conn)
	}
	var requests *nlutil.Conn
	if err == nil {
		requests, err = nlutil.Open(h.ns, unix.NETLINK_NETFILTER)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open nftables: %w", err), conn.Close())
	}
	h.nft = &reader{requests}
	return h, nil
}

// Available returns an error with the reason if the host's nftables cannot be
// used.
func (h *Handle) Available() error { return h.noNft }

// Port returns the netlink port of the handle. The kernel's events about changes
// of the handle have it.
func (h *Handle) Port() uint32 { return h.nftPort }

// Release clears the cached state.
func (h *Handle) Release() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.seenIPVSTable = nil
}

// change carries out a transaction. It returns the reason on a kernel without nftables.
func (h *Handle) change(queue func(*batch)) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.nft == nil {
		return h.noNft
	}
	b := h.begin()
	queue(b)
	return b.commit()
}

// drop deletes a table if it exists. A kernel without nftables has none.
func (h *Handle) drop(d definition) error {
	if h.noNft != nil {
		return nil
	}
	return h.change(func(b *batch) { b.dropTable(d.Table) })
}

// leftover returns the object if its table exists and no plan contains it.
func leftover(h *Handle, o plan.Object, d definition, known map[string]bool) (plan.Plan, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.nft == nil || known[o.Key()] {
		return nil, nil
	}
	if err := h.nft.find(d.Table); err != nil {
		return nil, missing(err)
	}
	return plan.Plan{o}, nil
}

// Try asks for Fairlead's table, and returns an error if the kernel cannot answer.
func (h *Handle) Try() error { return h.nft.find(table().Table) }

// Close closes the connection. It leaves the tables unchanged.
func (h *Handle) Close() error {
	if h.nft == nil {
		return nil
	}
	h.nft.Close()
	return h.nftConn.Close()
}
