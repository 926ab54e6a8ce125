package nft

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"fairlead/internal/kernel/nlutil"
	"fairlead/internal/model"

	"github.com/google/nftables/expr"
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
	b := &nftMessages{table: t.name}
	b.add(unix.NFT_MSG_NEWTABLE, []netlink.Attribute{
		{Type: unix.NFTA_TABLE_NAME, Data: cstring(t.name)}, {Type: unix.NFTA_TABLE_FLAGS, Data: be32(tableOwned)}})
	priority := int32(hookPriority)
	for number, hook := range traceHooks {
		b.add(unix.NFT_MSG_NEWCHAIN, []netlink.Attribute{
			{Type: unix.NFTA_CHAIN_TABLE, Data: cstring(t.name)}, {Type: unix.NFTA_CHAIN_NAME, Data: cstring(hook)},
			{Type: unix.NLA_F_NESTED | unix.NFTA_CHAIN_HOOK, Data: b.attrs([]netlink.Attribute{
				{Type: unix.NFTA_HOOK_HOOKNUM, Data: be32(uint32(number))},
				{Type: unix.NFTA_HOOK_PRIORITY, Data: be32(uint32(priority))}})},
			{Type: unix.NFTA_CHAIN_TYPE, Data: cstring("filter")},
		})
	}
	for _, m := range matches {
		for _, hook := range []string{"prerouting", "output"} {
			b.rule(hook, m.expressions())
		}
	}
	if b.err != nil {
		return b.err
	}
	if _, err := t.table.SendMessages(b.batch()); err != nil {
		return err
	}
	if err := t.table.SetReadDeadline(time.Now().Add(traceAnswer)); err != nil {
		return err
	}
	_, err := t.table.Receive()
	return err
}

// traceAnswer is how long the kernel may take to create the table.
const traceAnswer = 5 * time.Second

// expressions returns those of a rule that marks matching packets as traced.
func (m TraceMatch) expressions() []expr.Any {
	equal := func(value []byte) expr.Any { return &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: value} }
	all := []expr.Any{&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1}, equal([]byte{nlutil.Protocols[m.Proto]})}
	for i, end := range []netip.AddrPort{m.Src, m.Dst} {
		if a := end.Addr(); a.IsValid() {
			f := familyOf(a)
			all = append(all, &expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1}, equal([]byte{f.nfproto}),
				&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: []uint32{f.src, f.dst}[i],
					Len: f.addrLen}, equal(a.AsSlice()))
		}
		if end.Port() != 0 {
			all = append(all, &expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader,
				Offset: uint32(2 * i), Len: 2},
				equal(binary.BigEndian.AppendUint16(nil, end.Port())))
		}
	}
	return append(all, &expr.Immediate{Register: 1, Data: []byte{1}},
		&expr.Meta{Key: expr.MetaKeyNFTRACE, SourceRegister: true, Register: 1})
}

// nftMessages is a transaction on one table.
type nftMessages struct {
	table string
	list  []netlink.Message
	err   error
}

func (b *nftMessages) attrs(list []netlink.Attribute) []byte {
	data, err := netlink.MarshalAttributes(list)
	b.err = errors.Join(b.err, err)
	return data
}

func (b *nftMessages) add(kind int, list []netlink.Attribute) {
	b.list = append(b.list, netlink.Message{
		Header: netlink.Header{Type: netlink.HeaderType(unix.NFNL_SUBSYS_NFTABLES<<8 | kind),
			Flags: netlink.Request | netlink.Create},
		Data: append([]byte{unix.NFPROTO_INET, 0, 0, 0}, b.attrs(list)...)})
}

func (b *nftMessages) rule(chain string, exprs []expr.Any) {
	var list []netlink.Attribute
	for _, e := range exprs {
		data, err := expr.Marshal(unix.NFPROTO_INET, e)
		b.err = errors.Join(b.err, err)
		list = append(list, netlink.Attribute{Type: unix.NLA_F_NESTED | unix.NFTA_LIST_ELEM, Data: data})
	}
	b.add(unix.NFT_MSG_NEWRULE, []netlink.Attribute{
		{Type: unix.NFTA_RULE_TABLE, Data: cstring(b.table)}, {Type: unix.NFTA_RULE_CHAIN, Data: cstring(chain)},
		{Type: unix.NLA_F_NESTED | unix.NFTA_RULE_EXPRESSIONS, Data: b.attrs(list)}})
}

// batch returns the messages of the transaction. It requests an answer to the last
// one.
func (b *nftMessages) batch() []netlink.Message {
	b.list[len(b.list)-1].Header.Flags |= netlink.Acknowledge
	frame := func(kind int) netlink.Message {
		return netlink.Message{Header: netlink.Header{Type: netlink.HeaderType(kind), Flags: netlink.Request},
			Data: []byte{unix.AF_UNSPEC, 0, 0, unix.NFNL_SUBSYS_NFTABLES}}
	}
	return append(append([]netlink.Message{frame(unix.NFNL_MSG_BATCH_BEGIN)}, b.list...),
		frame(unix.NFNL_MSG_BATCH_END))
}

func cstring(s string) []byte { return append([]byte(s), 0) }

func be32(n uint32) []byte { return binary.BigEndian.AppendUint32(nil, n) }
