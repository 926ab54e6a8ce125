package nft

import (
	"errors"
	"fmt"
	"net/netip"
	"os"

	"fairlead/internal/model"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Tracer follows selected packets through the netfilter hooks of a namespace.
//
// Theory of operation. A temporary table marks the packets as traced (`meta
// nftrace set 1`) when they enter the namespace or are sent there. It has a chain
// at each hook, so that the kernel reports a packet even at hooks without other
// rules. The kernel reports every rule that a traced packet matches and the
// verdict of each chain (NFNLGRP_NFTRACE). The table is owned by a socket of this
// process (NFT_TABLE_F_OWNER, Linux 5.12): the kernel deletes it when the process
// ends or is killed.
type Tracer struct {
	table  *netlink.Conn // the table's owner
	events *netlink.Conn
	name   string
	links  map[uint32]string
}

// TraceMatch selects packets to trace. A zero field matches any value.
type TraceMatch struct {
	Proto    model.Proto
	Src, Dst netip.AddrPort
}

// TraceEvent is a traced packet at a rule or at the end of a chain.
type TraceEvent struct {
	// Hook is set if the event is from the tracer's table: the packet passes that
	// hook.
	Hook string
	// Family, Table, Chain and Handle identify the rule of another table that
	// matches; a Handle of 0 is the chain's policy.
	Family, Table, Chain string
	Handle               uint64
	// Dropped says that the packet ends here.
	Dropped bool
	// In and Out are the names of the links on which the packet came in and goes
	// out.
	In, Out  string
	Src, Dst netip.AddrPort
}

// nftables' numbers that x/sys/unix lacks (linux/netfilter/nf_tables.h).
const (
	tableOwned = 2 // NFT_TABLE_F_OWNER
	// hookPriority is lower than that of conntrack and of common rules: the tracer's
	// chains come first.
	hookPriority = -350
)

// traceHooks are the names of the hooks, by the kernel's numbers.
var traceHooks = []string{"prerouting", "input", "forward", "output", "postrouting"}

// Trace starts a Tracer for packets that match. Its Close ends the tracing and
// removes the table. It needs Linux 5.12 or later.
func (h *Handle) Trace(matches []TraceMatch) (*Tracer, error) {
	t := &Tracer{name: fmt.Sprintf("fairlead-probe-%d", os.Getpid()), links: map[uint32]string{}}
	indices, err := h.rtnl.Indices()
	if err != nil {
		return nil, err
	}
	for name, index := range indices {
		t.links[index] = name
	}
	at := &netlink.Config{NetNS: int(h.ns.File().Fd())}
	if t.events, err = netlink.Dial(unix.NETLINK_NETFILTER, at); err != nil {
		return nil, fmt.Errorf("watch a packet: %w", err)
	}
	if err = t.events.JoinGroup(unix.NFNLGRP_NFTRACE); err == nil {
		t.table, err = netlink.Dial(unix.NETLINK_NETFILTER, at)
	}
	if err == nil {
		err = t.make(matches)
	}
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EINVAL) {
		err = fmt.Errorf("%w (a probe needs tables with an owner, which Linux 5.12 has)", err)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("trace packets: %w", err), t.Close())
	}
	return t, nil
}

// Close ends the tracing. The kernel deletes the table with its socket.
func (t *Tracer) Close() error {
	var errs []error
	for _, c := range []*netlink.Conn{t.table, t.events} {
		if c != nil {
			errs = append(errs, c.Close())
		}
	}
	return errors.Join(errs...)
}

// make creates the table in one transaction.
func (t *Tracer) make(matches []TraceMatch) error {
	d := definition{Table: &nftables.Table{Name: t.name, Family: nftables.TableFamilyINet}}
	for number, hook := range traceHooks {
		ch := chain{name: hook, hook: nftables.ChainHookRef(nftables.ChainHook(number)), prio: hookPriority,
			kind: nftables.ChainTypeFilter}
		for _, m := range matches {
			if hook == "prerouting" || hook == "output" {
				ch.rules = append(ch.rules, compileRule(split(m.rule()), nil))
			}
		}
		d.chains = append(d.chains, ch)
	}
	var b batch
	b.edge(unix.NFNL_MSG_BATCH_BEGIN)
	b.step(unix.NFT_MSG_NEWTABLE, toMake, d.Table, "", func() { b.number(unix.NFTA_TABLE_FLAGS, tableOwned) })
	b.addChains(d)
	return b.send(t.table)
}

// rule returns the rule that marks matching packets as traced.
func (m TraceMatch) rule() string {
	text := "meta l4proto " + string(m.Proto)
	for i, end := range []netip.AddrPort{m.Src, m.Dst} {
		side := "sd"[i : i+1]
		family := "ip "
		if end.Addr().Is6() {
			family = "ip6 "
		}
		if end.Addr().IsValid() {
			text += fmt.Sprintf(" %s%saddr %s", family, side, end.Addr().WithZone("")) // a zone can be any text
		}
		if end.Port() != 0 {
			text += fmt.Sprintf(" th %sport %d", side, end.Port())
		}
	}
	return text + " meta nftrace set 1"
}
