// Package inspect reads the state of a host and of its sandboxes: links, sockets,
// services and counters, whichever program has made them. It changes nothing.
package inspect

import (
	"fairlead/internal/kernel/ebpf/datapath"
	"fairlead/internal/kernel/ipvs"
	"fairlead/internal/kernel/netns"
	"fairlead/internal/kernel/nft"
	"fairlead/internal/kernel/rtnl"
)

// Reader reads the state of a host. It is safe for concurrent use.
type Reader struct {
	ns   *netns.Namespace
	rtnl *rtnl.Reader
	nft  *nft.Handle
	ebpf *datapath.Handle
	ipvs *ipvs.Handle
}

// New returns a Reader of the host with these handles.
func New(r *rtnl.Reader, n *nft.Handle, e *datapath.Handle, i *ipvs.Handle) *Reader {
	return &Reader{ns: r.Netns(), rtnl: r, nft: n, ebpf: e, ipvs: i}
}

// readOnly returns a Reader with its own handles into sandboxes, for use while
// another goroutine applies a plan (rtnl.Reader.Copy).
func (h *Reader) readOnly() (*Reader, error) {
	reader, err := h.rtnl.Copy()
	if err != nil {
		return nil, err
	}
	return New(reader, h.nft, h.ebpf, h.ipvs), nil
}
