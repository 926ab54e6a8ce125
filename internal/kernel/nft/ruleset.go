package nft

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"fairlead/internal/kernel/rules"
	"fairlead/internal/plan"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Ruleset reads the firewall and NAT rules of the host's namespace, whichever
// program created them: those of nftables, of iptables-nft, and of legacy iptables
// if its programs are installed. unread describes what could not be read, such as
// rules of legacy ebtables. It
// leaves out Fairlead's rules for virtual services: InstalledServices returns
// these services.
func (h *Handle) Ruleset() (all rules.Ruleset, unread []string, err error) {
	impatient, end := context.WithCancel(context.Background())
	end()
	return PatientRuleset(impatient, h)
}

// PatientRuleset is Ruleset for callers that can wait until patience ends while nftables change
// all the time.
func PatientRuleset(patience context.Context, h *Handle) (all rules.Ruleset, unread []string, err error) {
	if h.nft == nil {
		unread = append(unread, h.noNft.Error())
	} else if all, err = h.nftRules(patience); errors.Is(err, nl.ErrDumpInterrupted) {
		unread = append(unread, "nftables change faster than they can be read, so rules may be missing")
	} else if err != nil {
		return nil, nil, fmt.Errorf("read nftables: %w", err)
	}
	err = h.ns.Do(func() error {
		for _, family := range []string{"ip", "ip6"} {
			text, err := legacyRules(family)
			if err != nil {
				unread = append(unread, err.Error())
			}
			all = append(all, rules.Saved(family, text)...)
		}
		if frames := LegacyFrames(); frames != "" {
			unread = append(unread, frames)
		}
		return nil
	})
	slices.SortStableFunc(all, func(a, b rules.Chain) int { return cmp.Compare(a.Priority, b.Priority) })
	return all, unread, err
}

// legacyRules runs the save program of legacy iptables if there are such tables.
// The kernel itself returns their rules only in a binary form.
func legacyRules(family string) (string, error) {
	names, err := os.ReadFile("/proc/thread-self/net/" + family + "_tables_names")
	if err != nil || len(strings.TrimSpace(string(names))) == 0 {
		return "", nil
	}
	program := map[string]string{"ip": "iptables-legacy-save", "ip6": "ip6tables-legacy-save"}[family]
	out, err := exec.Command(program).Output()
	if errors.Is(err, exec.ErrNotFound) {
		return "", fmt.Errorf("legacy iptables has %s tables (%s), and %s is not installed to read them",
			family, strings.Join(strings.Fields(string(names)), ", "), program)
	}
	if err != nil {
		return "", fmt.Errorf("run %s: %w", program, err)
	}
	return string(out), nil
}

// nftFamilies are the names of the families whose rules process packets or frames.
var nftFamilies = map[nftables.TableFamily]string{
	nftables.TableFamilyINet: "inet", nftables.TableFamilyIPv4: "ip", nftables.TableFamilyIPv6: "ip6",
	nftables.TableFamilyARP: "arp", nftables.TableFamilyBridge: "bridge", nftables.TableFamilyNetdev: "netdev"}

// nftChain names a chain, or a table if name is empty.
type nftChain struct {
	family      nftables.TableFamily
	table, name string
}

// readings is how often the nftables are read at least until they do not change meanwhile.
const readings = 3

// nftRules reads the nftables rules, again and again until patience ends while they change. If it returns
// nl.ErrDumpInterrupted, rules may be missing, or may not belong together.
func (h *Handle) nftRules(patience context.Context) (all rules.Ruleset, err error) {
	for i := 0; i < readings || patience.Err() == nil; i++ {
		if i >= readings {
			h.nft.awaitQuiet(patience)
		}
		var before, after uint32
		if before, err = h.nft.generation(); err != nil {
			return nil, err
		}
		if all, err = h.readRules(); err != nil && !errors.Is(err, nl.ErrDumpInterrupted) {
			return nil, err
		}
		if after, _ = h.nft.generation(); err == nil && before == after {
			return all, nil
		}
	}
	return all, fmt.Errorf("read rules: %w", nl.ErrDumpInterrupted)
}

// quiet is how long nftables must not change before they are read again.
const quiet = 50 * time.Millisecond

// awaitQuiet waits until nftables have not changed for a moment, or until patience ends. That costs
// less than reading them in vain.
func (r reader) awaitQuiet(patience context.Context) {
	before, _ := r.generation()
	for {
		select {
		case <-patience.Done():
			return
		case <-time.After(quiet):
		}
		after, _ := r.generation()
		if after == before {
			return
		}
		before = after
	}
}

// readRules reads the chains, rules and sets, one after the other.
func (h *Handle) readRules() (rules.Ruleset, error) {
	links, err := h.links()
	if err != nil {
		return nil, err
	}
	tables, err := h.nft.tables(allFamilies)
	if err != nil {
		return nil, err
	}
	intervals, err := h.nft.intervals()
	if err != nil {
		return nil, err
	}
	left := leftOut(tables)
	chains, interrupted := h.nft.chains(allFamilies)
	list, err := h.nft.rules(allFamilies)
	of, filled := byChain(list)
	var all rules.Ruleset
	for _, ch := range chains {
		family, ok := nftFamilies[ch.Table.Family]
		if !ok || left[nftChain{ch.Table.Family, ch.Table.Name, ""}] {
			continue
		}
		out := describeChain(family, ch.Chain)
		out.Links = ch.links
		var until time.Time
		sets := func(set string) ([]nftables.SetElement, error) {
			at := nftChain{ch.Table.Family, ch.Table.Name, set}
			if filled[at] {
				return nil, errFilled
			}
			elements, err := h.nft.elements(&nftables.Set{Table: ch.Table, Name: set})
			until = rules.Earlier(until, firstExpiry(elements, time.Now()))
			if intervals[at] {
				elements = markEnds(elements)
			}
			return elements, err
		}
		for _, r := range of[nftChain{ch.Table.Family, ch.Table.Name, ch.Name}] {
			until = time.Time{}
			for _, decoded := range rules.Decode(ch.Table.Family, r, sets, links) {
				decoded.Until = until
				out.Rules = append(out.Rules, decoded)
			}
		}
		all = append(all, out)
	}
	return all, errors.Join(interrupted, err)
}

// markEnds adds an end below the lowest key to the elements of a set of intervals, as most programs do. Else an interval
// without an end, such as one of all keys, would look like a single key.
func markEnds(elements []nftables.SetElement) []nftables.SetElement {
	if len(elements) == 0 {
		return nil
	}
	return append(elements, nftables.SetElement{Key: make([]byte, len(elements[0].Key)), IntervalEnd: true})
}

// firstExpiry returns when the first of the elements expires that were read at a time; zero if
// none does.
func firstExpiry(elements []nftables.SetElement, at time.Time) (first time.Time) {
	for _, e := range elements {
		if e.Expires > 0 {
			first = rules.Earlier(first, at.Add(e.Expires))
		}
	}
	return first
}

// errFilled means that rules add elements to a set: a packet that is explained may
// already have added its own.
var errFilled = errors.New("rules fill the set")

// byChain decodes the expressions of the rules. It returns the rules by chain, and the sets
// that rules fill, in the form of chains.
func byChain(list []foundRule) (of map[nftChain][]*nftables.Rule, filled map[nftChain]bool) {
	of, filled = map[nftChain][]*nftables.Rule{}, map[nftChain]bool{}
	for _, r := range list {
		rule := r.decode()
		at := nftChain{r.family, r.table, r.chain}
		of[at] = append(of[at], rule)
		for _, e := range rule.Exprs {
			if d, ok := e.(*expr.Dynset); ok {
				filled[nftChain{r.family, r.table, d.SetName}] = true
			}
		}
	}
	return of, filled
}

// links returns the host's links.
func (h *Handle) links() (rules.Links, error) {
	list, err := h.rtnl.ListLinks("")
	if err != nil {
		return nil, err
	}
	all := make(rules.Links, len(list))
	for i, l := range list {
		all[i] = rules.Link{Name: l.Attrs().Name, Index: uint32(l.Attrs().Index), Group: l.Attrs().Group,
			Type: hardware[l.Attrs().EncapType]}
	}
	return all, nil
}

// hardware are the numbers of types of hardware by the library's names.
var hardware = map[string]uint16{"ether": unix.ARPHRD_ETHER, "loopback": unix.ARPHRD_LOOPBACK}

// leftOut returns the tables whose rules Ruleset leaves out: those for virtual
// services, and dormant tables, whose chains get no packets.
func leftOut(tables []*nftables.Table) map[nftChain]bool {
	found := map[nftChain]bool{}
	for _, t := range tables {
		services := t.Family == nftables.TableFamilyINet &&
			(t.Name == plan.ServicesTable || t.Name == plan.IPVSTableName)
		if services || t.Flags&tableDormant != 0 {
			found[nftChain{t.Family, t.Name, ""}] = true
		}
	}
	return found
}

// hookNames are the names of the hooks by number (linux/netfilter.h: enum
// nf_inet_hooks; those of the bridge are the same, see
// linux/netfilter_bridge.h). Two families have others.
var (
	hookNames       = []string{"prerouting", "input", "forward", "output", "postrouting", "ingress"}
	familyHookNames = map[string][]string{"arp": {"input", "output", "forward"}, "netdev": {"ingress", "egress"}}
)

func describeChain(family string, ch *nftables.Chain) rules.Chain {
	out := rules.Chain{Table: family + " " + ch.Table.Name, Name: ch.Name, Type: string(ch.Type)}
	names := hookNames
	if own, ok := familyHookNames[family]; ok {
		names = own
	}
	if ch.Hooknum == nil || int(*ch.Hooknum) >= len(names) {
		return out
	}
	out.Hook, out.Policy = names[*ch.Hooknum], rules.Accept
	if ch.Policy != nil && *ch.Policy == nftables.ChainPolicyDrop {
		out.Policy = rules.Drop
	}
	if ch.Priority != nil {
		out.Priority = int(*ch.Priority)
	}
	return out
}
