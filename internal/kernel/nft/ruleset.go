package nft

import (
	"cmp"
	"errors"
	"fmt"
	"math/bits"
	"os"
	"os/exec"
	"slices"
	"strings"

	"fairlead/internal/kernel/rules"
	"fairlead/internal/plan"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"
)

// Ruleset reads the firewall and NAT rules of the host's namespace, whichever
// program created them: those of nftables, of iptables-nft, and of legacy iptables
// if its programs are installed. unread describes what could not be read. It
// leaves out Fairlead's rules for virtual services: InstalledServices returns
// these services.
func (h *Handle) Ruleset() (all rules.Ruleset, unread []string, err error) {
	if h.nft == nil {
		unread = append(unread, h.noNft.Error())
	} else if all, err = h.nftRules(); err != nil {
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

// nftRules reads the nftables rules on a separate connection, because h.nft may be
// in use for a transaction. It starts again, at most ten times, if the rules
// change meanwhile.
func (h *Handle) nftRules() (rules.Ruleset, error) {
	conn, err := nftables.New(nftables.WithNetNSFd(int(h.ns.File().Fd())), nftables.AsLasting(),
		nftables.WithSockOptions(largeBuffers))
	if err != nil {
		return nil, err
	}
	c := carefulNft{conn}
	defer func() { _ = c.CloseLasting() }()
	var all rules.Ruleset
	for range 10 {
		if all, err = h.readChains(c); err == nil || !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.ENOENT) {
			break
		}
	}
	return all, err
}

func (h *Handle) readChains(c carefulNft) (rules.Ruleset, error) {
	links, err := h.links()
	if err != nil {
		return nil, err
	}
	list, err := c.ListChains()
	if err != nil {
		return nil, err
	}
	left, err := h.readLeftOut()
	if err != nil {
		return nil, err
	}
	dormant, err := dormantTables(c)
	if err != nil {
		return nil, err
	}
	var all rules.Ruleset
	for _, ch := range list {
		family, ok := nftFamilies[ch.Table.Family]
		if !ok || dormant[nftChain{byte(ch.Table.Family), ch.Table.Name, ""}] ||
			family == "inet" && (ch.Table.Name == plan.ServicesTable || ch.Table.Name == plan.IPVSTableName) {
			continue
		}
		out := describeChain(family, ch)
		out.Links = left.links[nftChain{byte(ch.Table.Family), ch.Table.Name, ch.Name}]
		sets := func(set string) ([]nftables.SetElement, error) {
			return c.GetSetElements(&nftables.Set{Table: ch.Table, Name: set})
		}
		found, err := c.GetRules(ch.Table, ch)
		var errno unix.Errno
		switch {
		case errors.As(err, &errno):
			return nil, err
		case err != nil: // the library cannot read one of the rules: see ruleData
			out.Rules = append(out.Rules, rules.Rule{Partial: true, Action: rules.Other})
		}
		for _, r := range found {
			left.complete(byte(ch.Table.Family), r)
			out.Rules = append(out.Rules, rules.Decode(ch.Table.Family, r, sets, links)...)
		}
		all = append(all, out)
	}
	return all, nil
}

// links returns the host's links.
func (h *Handle) links() (rules.Links, error) {
	list, err := h.rtnl.ListLinks("")
	if err != nil {
		return nil, err
	}
	all := make(rules.Links, len(list))
	for i, l := range list {
		all[i] = rules.Link{Name: l.Attrs().Name, Index: uint32(l.Attrs().Index), Group: l.Attrs().Group}
	}
	return all, nil
}

// dormantTables returns the tables that are dormant: their chains get no packets.
func dormantTables(c carefulNft) (map[nftChain]bool, error) {
	tables, err := c.ListTables()
	found := map[nftChain]bool{}
	for _, t := range tables {
		// The library reads the flags in host byte order, and the kernel writes them in
		// network byte order.
		if (t.Flags|bits.ReverseBytes32(t.Flags))&tableDormant != 0 {
			found[nftChain{byte(t.Family), t.Name, ""}] = true
		}
	}
	return found, err
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
