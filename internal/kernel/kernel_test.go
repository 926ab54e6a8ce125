package kernel

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"fairlead/internal/kernel/kerneltest"
	"fairlead/internal/model"
	"fairlead/internal/plan"
)

func openTestHost(t testing.TB) *Host {
	t.Helper()
	ns := kerneltest.Netns(t)
	h, err := Open(ns.Path(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	return h
}

// Run runs a command in the host's namespace and returns its output.
func (h *Host) run(t testing.TB, name string, args ...string) string {
	t.Helper()
	return kerneltest.Run(t, h.ns, name, args...)
}

func TestTableIsItsText(t *testing.T) {
	h := openTestHost(t)
	if err := h.nft.Transact([]plan.Op{{Object: plan.Table{}}}); err != nil {
		t.Fatal(err)
	}
	got := normalizeNft(h.run(t, "nft", "list", "table", "inet", plan.Mark))
	h.run(t, "nft", "delete", "table", "inet", plan.Mark)
	file := t.TempDir() + "/table.nft"
	h.run(t, "sh", "-c", "cat > "+file+" <<'EOF'\n"+plan.TableText+"EOF")
	h.run(t, "nft", "-f", file)
	want := normalizeNft(h.run(t, "nft", "list", "table", "inet", plan.Mark))
	if got != want {
		t.Errorf("the kernel's table differs from plan.TableText:\n%s\nwant:\n%s", got, want)
	}
}

// normalizeNft removes blank lines and Fairlead's comments, and sorts the sets,
// whose order in a listing has no meaning.
func normalizeNft(s string) string {
	var blocks []string
	for _, b := range strings.Split(strings.ReplaceAll(s, ` comment "fairlead"`, ""), "\n\t}\n") {
		blocks = append(blocks, strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(b), "table inet fairlead {")))
	}
	slices.Sort(blocks)
	return strings.Join(blocks, "\n")
}

// someElements returns elements of every kind.
func someElements() plan.Plan {
	addr, prefix := netip.MustParseAddr, netip.MustParsePrefix
	return plan.Plan{
		plan.NFTMapping{Host: addr("192.0.2.1"), Proto: model.TCP, Ports: model.Port(80), To: addr("10.0.0.2"),
			ToPort: 8080},
		plan.NFTMapping{Host: addr("0.0.0.0"), Proto: model.UDP, Ports: model.Port(53), To: addr("10.0.0.2"),
			ToPort: 53},
		plan.NFTMapping{Host: addr("0.0.0.0"), Proto: model.TCP, Ports: model.PortRange{First: 8000, Last: 8999},
			To: addr("10.0.0.2")},
		plan.NFTMapping{Host: addr("2001:db8::1"), Proto: model.TCP, Ports: model.Port(80), To: addr("fd00::2"),
			ToPort: 8080},
		plan.NFTMapping{Host: addr("::"), Proto: model.TCP, Ports: model.Port(81), To: addr("fd00::2"), ToPort: 81},
		plan.NFTMapping{Host: addr("2001:db8::1"), Proto: model.UDP, Ports: model.PortRange{First: 1, Last: 65535},
			To: addr("fd00::2")},
		plan.Member{Set: plan.SetLinks, Link: "fl-web"},
		plan.Member{Set: plan.SetWithin, Link: "fl-web"},
		plan.Member{Set: plan.SetHairpin, Src: prefix("10.0.0.0/24"), Dst: prefix("10.0.0.0/24")},
		plan.Member{Set: plan.SetHairpin, Src: prefix("fd00::2/128"), Dst: prefix("fd00::2/128")},
		plan.Member{Set: plan.SetOutbound, Src: prefix("10.0.0.0/24"), Dst: prefix("0.0.0.0/0")},
	}
}

func TestElementsAreReadBack(t *testing.T) {
	h := openTestHost(t)
	want := someElements()
	all := append(plan.Plan{plan.Table{}}, want...)
	if err := h.nft.Transact(plan.Diff(nil, all)); err != nil {
		t.Fatal(err)
	}
	have, err := h.Observe(nil, all)
	if err != nil {
		t.Fatal(err)
	}
	if ops := plan.Diff(have, all); len(ops) != 0 {
		t.Errorf("steps that remain after setting:\n%s", plan.Text(ops))
	}
	// nft accepts the displayed commands, and they have the same effect.
	h.run(t, "nft", "flush", "ruleset")
	for _, op := range plan.Diff(nil, all) {
		for _, c := range op.Commands() {
			h.run(t, "sh", "-c", c)
		}
	}
	whole, err := h.nft.ReadTable()
	if err != nil {
		t.Fatal(err)
	}
	if len(whole) != 0 {
		t.Errorf("a table without Fairlead's mark is read as Fairlead's")
	}
	if err := h.nft.Transact(plan.Diff(all, nil)); err != nil {
		t.Fatal(err)
	}
	if out := h.run(t, "nft", "list", "ruleset"); out != "" {
		t.Errorf("the ruleset is not empty:\n%s", out)
	}
}

func TestProbe(t *testing.T) {
	facts, err := Probe()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range []plan.Feature{plan.FeatureVeth, plan.FeatureBridge, plan.FeatureNAT, plan.FeatureIPv6,
		plan.FeatureEBPF, plan.FeatureCgroupHooks} {
		if !facts.Has(f) {
			t.Errorf("%s: %s", f, facts.Missing[f])
		}
	}
}
