// Package conntrack reads the conntrack table of a network namespace and deletes
// entries of it.
package conntrack

import (
	"fmt"
	"net"
	"net/netip"
	"time"

	"fairlead/internal/kernel/netns"
	"fairlead/internal/kernel/nlutil"
	"fairlead/internal/model"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Reader reads the table. It cannot change it. It is safe for concurrent use.
type Reader struct{ ns *netns.Namespace }

// Table reads and changes the table. It is safe for concurrent use.
type Table struct {
	Reader
	// around calls the function that deletes entries. It may be nil.
	around Around
}

// Around calls a function that deletes entries while there is no flowtable. The function gets
// whether there was one before.
type Around func(func(flowtable bool) error) error

// Open returns the conntrack table of a network namespace. Keep ns open while you use
// the table.
func Open(ns *netns.Namespace) *Table { return &Table{Reader: Reader{ns}} }

// Within makes Flush delete entries in a call of run. It returns the table.
func (h *Table) Within(run Around) *Table {
	h.around = run
	return h
}

// Flow is a connection in the conntrack table: its original destination and the end
// that answers.
type Flow struct {
	Proto  model.Proto
	Client netip.AddrPort
	// Host is the destination that the client chose.
	Host netip.AddrPort
	// Target is the source of the replies, i.e. the destination after DNAT.
	Target netip.AddrPort
	// Over means that the TCP connection has ended and conntrack keeps the entry
	// for a while. Open means that the TCP connection is established at both ends.
	Over, Open bool
}

// Ends are a connection's client address and the address that it has dialled.
type Ends struct{ Client, Host netip.AddrPort }

// Ends returns the ends of the flow as the client sees them.
func (f Flow) Ends() Ends { return Ends{f.Client, f.Host} }

// Flush deletes the conntrack entries that match, so that the next packet
// passes the rules again, and returns the deleted flows. The kernel needs
// milliseconds to list even a few entries, because it walks the whole hash table.
// Therefore Flush lists both address families at once, and nothing if the
// table is empty.
func (h *Table) Flush(match func(Flow) bool) ([]Flow, error) {
	if fill, ok := h.Fill(); ok && fill.Entries == 0 {
		return nil, nil
	}
	handle, err := h.ns.Netlink(unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, fmt.Errorf("open conntrack: %w", err)
	}
	defer handle.Close()
	all, err := nlutil.Retry(func() ([]*netlink.ConntrackFlow, error) {
		return handle.ConntrackTableList(netlink.ConntrackTable, unix.AF_UNSPEC)
	})
	if err != nil {
		return nil, fmt.Errorf("list conntrack: %w", err)
	}
	var flushed []Flow
	families := map[uint8]bool{}
	for _, f := range all {
		if flow, ok := flowOf(f); ok && match(flow) {
			families[f.FamilyType] = true
			flushed = append(flushed, flow)
		}
	}
	if len(flushed) == 0 {
		return nil, nil
	}
	remove := func(flowtable bool) error { return deleteFlows(handle, families, flowFilter(match), flowtable) }
	if h.around != nil {
		err = h.around(remove)
	} else {
		err = remove(false)
	}
	if err != nil {
		return nil, fmt.Errorf("flush conntrack: %w", err)
	}
	return flushed, nil
}

// busy is how long deletions are repeated if there was a flowtable: kernels before about 6.4
// refuse to delete an entry until the work that frees the flowtable has run.
const busy = time.Second

func deleteFlows(handle *netlink.Handle, families map[uint8]bool, match flowFilter, flowtable bool) error {
	end := time.Now().Add(busy)
	for family := range families {
		for {
			_, err := handle.ConntrackDeleteFilters(netlink.ConntrackTable, netlink.InetFamily(family), match)
			if err == nil {
				break
			}
			if !flowtable || time.Now().After(end) {
				return err
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	return nil
}

type flowFilter func(Flow) bool

// MatchConntrackFlow implements netlink.CustomConntrackFilter.
func (match flowFilter) MatchConntrackFlow(f *netlink.ConntrackFlow) bool {
	flow, ok := flowOf(f)
	return ok && match(flow)
}

// flowOf converts a conntrack entry and reports whether it is TCP or UDP.
func flowOf(f *netlink.ConntrackFlow) (Flow, bool) {
	proto, ok := map[uint8]model.Proto{unix.IPPROTO_TCP: model.TCP, unix.IPPROTO_UDP: model.UDP}[f.Forward.Protocol]
	at := func(ip net.IP, port uint16) netip.AddrPort { return netip.AddrPortFrom(nlutil.Addr(ip), port) }
	tcp, _ := f.ProtoInfo.(*netlink.ProtoInfoTCP)
	return Flow{
		Proto:  proto,
		Client: at(f.Forward.SrcIP, f.Forward.SrcPort),
		Host:   at(f.Forward.DstIP, f.Forward.DstPort),
		Target: at(f.Reverse.SrcIP, f.Reverse.SrcPort),
		Over:   tcp != nil && tcp.State >= stateTimeWait,
		Open:   tcp != nil && tcp.State >= stateEstablished && tcp.State < stateTimeWait,
	}, ok
}
