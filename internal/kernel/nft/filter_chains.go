package nft

import (
	"errors"
	"fmt"
	"slices"

	"fairlead/internal/kernel/rules"

	"github.com/google/nftables"
)

// FilterChains reads the chains with these names of the filter table of
// iptables-nft. It returns none if the kernel has no nftables.
func (h *Handle) FilterChains(v4 bool, names []string) (rules.Ruleset, error) {
	if h.nft == nil {
		return nil, nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	family := nftables.TableFamilyIPv6
	if v4 {
		family = nftables.TableFamilyIPv4
	}
	list, err := h.nft.ListChainsOfTableFamily(family)
	if err != nil {
		return nil, fmt.Errorf("list nft chains: %w", err)
	}
	var all rules.Ruleset
	for _, ch := range list {
		if ch.Table.Name != "filter" || !slices.Contains(names, ch.Name) {
			continue
		}
		out := describeChain(nftFamilies[family], ch)
		found, err := h.nft.GetRules(ch.Table, ch)
		if err != nil {
			return nil, fmt.Errorf("list rules of chain %s: %w", ch.Name, err)
		}
		for _, r := range found {
			all := rules.Decode(family, r, noSets, nil)
			out.Rules = append(out.Rules, all[0]) // Decode returns one rule: iptables has no maps
		}
		all = append(all, out)
	}
	return all, nil
}

func noSets(string) ([]nftables.SetElement, error) { return nil, errors.New("iptables has no sets") }
