package nft

import (
	"net/netip"
	"slices"
	"testing"

	"fairlead/internal/kernel/kerneltest"
	"fairlead/internal/kernel/rtnl"
	"fairlead/internal/kernel/rtnl/handles"
	"fairlead/internal/kernel/rules"
	"fairlead/internal/model"
	"fairlead/internal/plan"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"
)

// openTest opens the nftables of a new namespace.
func openTest(t *testing.T) *Handle {
	t.Helper()
	h, err := Open(rtnl.New(handles.New(kerneltest.Netns(t))))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	return h
}

// cutShort is user data whose length field is larger than the data.
var cutShort = []byte{0, 200, 'x'}

// TestMalformedUserData attaches truncated user data to a rule and to an element,
// as root of a sandbox may do in a table there, and reads the ruleset.
func TestMalformedUserData(t *testing.T) {
	h := openTest(t)
	kerneltest.Run(t, h.ns, "nft",
		"add table ip o; add chain ip o in { type filter hook input priority 0; policy drop; }; "+
			"add set ip o s { type inet_service; }; add rule ip o in tcp dport @s accept; add rule ip o in tcp dport 22 accept")
	o := &nftables.Table{Name: "o", Family: nftables.TableFamilyIPv4}
	b := h.begin()
	b.step(unix.NFT_MSG_NEWRULE, toAdd, o, "in", func() { b.attr(unix.NFTA_RULE_USERDATA, cutShort) })
	b.step(unix.NFT_MSG_NEWSETELEM, toMake, o, "s",
		func() { b.malformedElement(unix.NFTA_SET_ELEM_LIST_ELEMENTS, []byte{0, 80}) })
	if err := b.commit(); err != nil {
		t.Fatal(err)
	}
	rs, unread, err := h.Ruleset()
	if err != nil || len(unread) > 0 {
		t.Fatal(unread, err)
	}
	c, found := rs.Find("ip o", "in")
	if !found || c.Policy != rules.Drop || len(c.Rules) != 3 || c.Rules[0].Partial || c.Rules[1].Partial ||
		c.Rules[2].Comment != "" {
		t.Errorf("the chain is read as %+v", c)
	}
}

// malformedElement adds a list of one element with truncated user data.
func (b *batch) malformedElement(list uint16, key []byte) {
	b.nest(list, func() {
		b.nest(unix.NFTA_LIST_ELEM, func() {
			b.nest(unix.NFTA_SET_ELEM_KEY, func() { b.attr(unix.NFTA_DATA_VALUE, key) })
			b.attr(unix.NFTA_SET_ELEM_USERDATA, cutShort)
		})
	})
}

// TestUnreadableTableIsReplaced puts such an element, and a set whose keys have
// another type, into table fairlead.
func TestUnreadableTableIsReplaced(t *testing.T) {
	member := plan.Member{Set: plan.SetLinks, Link: "web"}
	for name, spoil := range map[string]func(*testing.T, *Handle){
		"an element with malformed user data": func(t *testing.T, h *Handle) {
			b := h.begin()
			b.step(unix.NFT_MSG_NEWSETELEM, toMake, table().Table, plan.SetLinks, func() {
				b.malformedElement(unix.NFTA_SET_ELEM_LIST_ELEMENTS, append([]byte("evil"), make([]byte, 12)...))
			})
			if err := b.commit(); err != nil {
				t.Fatal(err)
			}
		},
		"another set with the same name": func(t *testing.T, h *Handle) {
			name := plan.SetHairpin + "4"
			kerneltest.Run(t, h.ns, "sh", "-ec", `nft list table inet `+plan.Mark+` | awk '/set `+name+
				` / { skip = 1; print "set `+name+
				` { type inet_service; elements = { 1 }; }" } !skip { print } skip && /}/ { skip = 0 }' > $0/rules
				sed -i 's/^.*@`+name+`.*$/accept comment "`+plan.Mark+`"/' $0/rules; nft delete table inet `+plan.Mark+
				`; nft -f $0/rules`, t.TempDir())
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := openTest(t)
			want := plan.Plan{plan.Table{}, member}
			for _, o := range want {
				if err := h.Transact([]plan.Op{{Object: o}}); err != nil {
					t.Fatal(err)
				}
			}
			spoil(t, h)
			have, err := h.ReadTable()
			if err != nil {
				t.Fatal(err)
			}
			if len(have) == len(want) {
				t.Fatalf("the table is reported as complete: %v", have)
			}
			for _, o := range want {
				if err := h.Transact([]plan.Op{{Object: o}}); err != nil {
					t.Fatal(err)
				}
			}
			if have, err = h.ReadTable(); err != nil || len(have) != len(want) {
				t.Errorf("after the repair it is %v, %v", have, err)
			}
		})
	}
}

// direction is a rule with a conntrack direction, as iptables-translate makes it of
// --ctorigdst.
const direction = "ct original ip daddr 192.0.2.1 accept"

// TestDirectionOfConntrack reads a rule with a conntrack direction: its condition is not
// evaluated, and the rules beside it are.
func TestDirectionOfConntrack(t *testing.T) {
	h := openTest(t)
	kerneltest.Run(t, h.ns, "nft", "add table ip filter; "+
		"add chain ip filter FORWARD { type filter hook forward priority 0; policy drop; }; "+
		"add rule ip filter FORWARD tcp dport 22 accept; add rule ip filter FORWARD "+direction)
	for name, read := range map[string]func() (rules.Ruleset, error){
		"all rules": func() (rules.Ruleset, error) { rs, _, err := h.Ruleset(); return rs, err },
		"the filter table": func() (rules.Ruleset, error) {
			return h.FilterChains(true, []string{"FORWARD", "DOCKER-USER"})
		},
	} {
		rs, err := read()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		c, _ := rs.Find("ip filter", "FORWARD")
		if len(c.Rules) != 2 || c.Rules[0].Partial || !c.Rules[1].Partial || c.Rules[1].Action != rules.Accept {
			t.Errorf("%s: the chain is read as %+v", name, c)
		}
	}
}

// TestAlteredTablesAreReplaced adds a rule to a chain of each of Fairlead's tables,
// changes the chain's policy, and repairs the tables.
func TestAlteredTablesAreReplaced(t *testing.T) {
	h := openTest(t)
	local := netip.MustParseAddr("192.0.2.1")
	untracked := plan.NoTrack{Port: 4789, Local: local}
	guard := plan.Guard{Addresses: []netip.AddrPort{netip.AddrPortFrom(local, 0)}}
	transact := func(o plan.Object) func() error {
		return func() error { return h.Transact([]plan.Op{{Object: o}}) }
	}
	group := func(read func() (plan.Plan, error), of plan.Object) func() (plan.Object, error) {
		return func() (plan.Object, error) {
			have, err := read()
			same := func(o plan.Object) bool { return o.Key() == of.Key() }
			return plan.OrNil(of, slices.ContainsFunc(have, same)), err
		}
	}
	for _, c := range []struct {
		table, chain string
		want         plan.Object
		set          func() error
		read         func() (plan.Object, error)
	}{
		{plan.Mark, "forward", plan.Table{}, transact(plan.Table{}), group(h.ReadTable, plan.Table{})},
		{plan.ServicesTable, "prerouting", plan.ServiceTable{}, transact(plan.ServiceTable{}),
			group(func() (plan.Plan, error) { return h.ReadServices() }, plan.ServiceTable{})},
		{plan.GuardTable, "input", guard, func() error { return h.SetGuard(guard) },
			func() (plan.Object, error) { return h.ReadGuard(guard) }},
		{plan.IPVSTableName, "postrouting", plan.IPVSTable{}, func() error { return h.SetIPVSTable(plan.IPVSTable{}) },
			func() (plan.Object, error) { h.Release(); return h.ReadOfIPVSTable(plan.IPVSTable{}) }},
		{untracked.Table(), "in", untracked, func() error { return h.SetNoTrack(untracked) },
			func() (plan.Object, error) { return h.ReadNoTrack(untracked) }},
	} {
		for what, alter := range map[string]string{
			"a rule":   "add rule inet " + c.table + " " + c.chain + " " + direction,
			"a policy": "add chain inet " + c.table + " " + c.chain + " { policy drop; }",
		} {
			if err := c.set(); err != nil {
				t.Fatal(err)
			}
			if is, err := c.read(); err != nil || !plan.Equal(is, c.want) {
				t.Fatalf("table %s is read as %v, %v", c.table, is, err)
			}
			kerneltest.Run(t, h.ns, "nft", alter)
			if is, err := c.read(); err != nil || is != nil && plan.Equal(is, c.want) {
				t.Errorf("table %s with %s is read as %v, %v", c.table, what, is, err)
			}
			if err := c.set(); err != nil {
				t.Fatal(err)
			}
			if is, err := c.read(); err != nil || !plan.Equal(is, c.want) {
				t.Errorf("after the repair, table %s is read as %v, %v", c.table, is, err)
			}
		}
	}
}

// TestAdjacentIntervals reads a set whose intervals follow each other without a gap: a packet is in each of them, and
// not in what is beside them.
func TestAdjacentIntervals(t *testing.T) {
	h := openTest(t)
	kerneltest.Run(t, h.ns, "nft", "add table ip o; add chain ip o in { type filter hook input priority 0; }; "+
		"add set ip o s { type ipv4_addr; flags interval; elements = { 10.0.1.0/24, 10.0.0.0/24, 10.0.2.0-10.0.2.9 }; }; "+
		"add rule ip o in ip saddr @s drop")
	rs, _, err := h.Ruleset()
	if err != nil {
		t.Fatal(err)
	}
	for from, want := range map[string]rules.Action{"9.255.255.255": rules.Accept, "10.0.0.0": rules.Drop,
		"10.0.0.255": rules.Drop, "10.0.1.0": rules.Drop, "10.0.1.255": rules.Drop, "10.0.2.9": rules.Drop,
		"10.0.2.10": rules.Accept} {
		p := rules.Packet{Proto: model.UDP, From: netip.MustParseAddrPort(from + ":1000"),
			To: netip.MustParseAddrPort("192.0.2.1:53")}
		if v := rs.Filter("input", p); v.Action != want || !v.Certain {
			t.Errorf("a packet from %s: %s, certain %t, want %s", from, v.Action, v.Certain, want)
		}
	}
}

// TestSetOfUnknownField reads a rule that looks up a field that is not evaluated.
func TestSetOfUnknownField(t *testing.T) {
	h := openTest(t)
	kerneltest.Run(t, h.ns, "nft", "add table ip o; add chain ip o in { type filter hook input priority 0; }; "+
		"add rule ip o in ct original ip daddr { 192.0.2.1, 192.0.2.2 } accept")
	rs, _, err := h.Ruleset()
	if err != nil {
		t.Fatal(err)
	}
	c, _ := rs.Find("ip o", "in")
	if len(c.Rules) != 1 || !c.Rules[0].Partial || len(c.Rules[0].Conditions) != 0 {
		t.Errorf("the chain is read as %+v", c)
	}
}
