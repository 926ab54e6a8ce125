package nft

import (
	"errors"

	"fairlead/internal/kernel/rules"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"
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
	t := &nftables.Table{Name: "filter", Family: family}
	var all rules.Ruleset
	for _, name := range names {
		ch, err := h.nft.chain(t, name)
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if err != nil {
			return nil, err
		}
		found, err := h.nft.rules(family, t.Name, name)
		if err != nil {
			return nil, err
		}
		out := describeChain(nftFamilies[family], ch.Chain)
		for _, r := range found {
			all := rules.Decode(family, r.decode(), noSets, nil)
			out.Rules = append(out.Rules, all[0]) // Decode returns one rule: iptables has no maps
		}
		all = append(all, out)
	}
	return all, nil
}

func noSets(string) ([]nftables.SetElement, error) { return nil, errors.New("iptables has no sets") }
