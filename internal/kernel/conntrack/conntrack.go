// Package conntrack reads the conntrack table of a network namespace and deletes
// entries of it.
package conntrack

import (
	"fmt"
	"net/netip"
	"time"

	"fairlead/internal/kernel/netns"
	"fairlead/internal/kernel/nlutil"
	"fairlead/internal/model"

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
	var flushed []Flow
	var stale [][]byte
	conn, err := h.list(nil, func(entry []byte) {
		if f, ok := decode(entry); ok && match(f) {
			flushed, stale = append(flushed, f), append(stale, entry)
		}
	})
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if len(stale) == 0 {
		return nil, nil
	}
	remove := func(flowtable bool) error { return deleteEntries(conn, stale, flowtable) }
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

// deleteEntries deletes listed entries, and returns the first error. Each contains its connection's id, so the kernel
// deletes no later connection between the same ends.
func deleteEntries(conn *nlutil.Conn, entries [][]byte, flowtable bool) (failed error) {
	end := time.Now().Add(busy)
	for _, entry := range entries {
		_, err := conn.Request(ctDelete, unix.NLM_F_ACK, entry)
		for flowtable && err != nil && !nlutil.Absent(err) && time.Now().Before(end) {
			time.Sleep(10 * time.Millisecond)
			_, err = conn.Request(ctDelete, unix.NLM_F_ACK, entry)
		}
		if failed == nil && !nlutil.Absent(err) {
			failed = err
		}
	}
	return failed
}
