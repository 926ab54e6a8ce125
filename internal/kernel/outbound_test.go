package kernel

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fairlead/internal/kernel/rules"
)

// TestDecidersOfLegacyTables: with legacy iptables, the rules decide. On a host without its
// programs the rules cannot be read, which is a reason against ebpf, too, but only if there
// are such tables.
func TestDecidersOfLegacyTables(t *testing.T) {
	h := openTestHost(t)
	h.run(t, "ip", "link", "add", "up0", "type", "veth", "peer", "name", "up1")
	h.run(t, "ip", "link", "set", "up0", "up")
	h.run(t, "ip", "link", "set", "up1", "up")
	decides := func(when, want string) {
		t.Helper()
		path := rules.Path{Senders: netip.MustParsePrefix("172.30.0.0/24"), Router: "fl-net"}
		why, err := h.Deciders(t.Context(), []rules.Path{path})
		if err != nil || len(why) != 1 || (why[0].Text == "") != (want == "") || !strings.Contains(why[0].Text, want) {
			t.Errorf("%s: %q, %v, want %q", when, why, err, want)
		}
	}
	decides("no tables", "")
	path := os.Getenv("PATH")
	t.Setenv("PATH", t.TempDir())
	decides("no tables and no programs", "")
	t.Setenv("PATH", path)
	h.run(t, "iptables-legacy", "-A", "FORWARD", "-i", "docker0", "-j", "DROP")
	decides("a rule about another link", "")
	h.run(t, "iptables-legacy", "-A", "FORWARD", "-d", "198.51.100.1", "-j", "DROP")
	decides("a rule that drops", "chain FORWARD (ip filter (legacy)) may have the effect drop")
	h.run(t, "iptables-legacy", "-F", "FORWARD")
	t.Setenv("PATH", t.TempDir())
	decides("tables without rules, and no programs", "iptables-legacy-save is not installed to read them")
}

// TestDecidersOfNftables: rules as the kernel returns them.
func TestDecidersOfNftables(t *testing.T) {
	h := openTestHost(t)
	h.run(t, "sh", "-ec", "ip link add up0 type veth peer name up1; ip link set up0 up; ip link set up1 up")
	path := rules.Path{Senders: netip.MustParsePrefix("172.30.0.0/24"), Router: "fl-net"}
	for _, c := range []struct{ name, rule, want string }{
		{"a smaller MSS", "tcp flags syn tcp option maxseg size set rt mtu", "may have the effect other"},
		{"a TCP option is removed", "reset tcp option sack-perm", "may have the effect other"},
		{"a TCP option is compared", "tcp option maxseg size 1-500 drop", "may have the effect drop"},
		{"answers on another uplink", "fib saddr . iif oif missing drop", "may have the effect drop"},
		{"a TCP option is counted", "tcp option maxseg size 1-500 counter", ""},
		{"a helper, which translates addresses in the payload", `ct helper set "ftp"`, "may have the effect other"},
		{"an interval of all keys", "meta l4proto @whole drop", "has the effect drop"},
		{"a map with an interval of all keys", "meta l4proto vmap @m", "has the effect drop"},
		{"an interval of all keys, negated", "meta l4proto != @whole drop", ""},
		{"an interval of the first key", "meta l4proto @one drop", ""},
	} {
		h.run(t, "nft", "flush ruleset; add table ip o; add chain ip o c { type filter hook forward priority mangle; }; "+
			`add ct helper ip o ftp { type "ftp" protocol tcp; }; `+
			"add set ip o whole { type inet_proto; flags interval; elements = { 0-255 }; }; "+
			"add set ip o one { type inet_proto; flags interval; elements = { 0 }; }; "+
			"add map ip o m { type inet_proto : verdict; flags interval; elements = { 0-255 : drop }; }; "+
			"add rule ip o c "+c.rule)
		why, err := h.Deciders(t.Context(), []rules.Path{path})
		if err != nil || (why[0].Text == "") != (c.want == "") || !strings.Contains(why[0].Text, c.want) {
			t.Errorf("%s: %q, %v, want %q", c.name, why, err, c.want)
		}
	}
}

// BenchmarkUnreported polls a host without tables of legacy iptables, and one with 1,000 rules in two.
func BenchmarkUnreported(b *testing.B) {
	for _, legacy := range []int{0, 1000} {
		b.Run(fmt.Sprint(legacy), func(b *testing.B) {
			h := openTestHost(b)
			for _, table := range []string{"filter", "mangle"} {
				text := "*" + table + "\n" + strings.Repeat("-A FORWARD -d 192.0.2.1 -j DROP\n", legacy/2) + "COMMIT\n"
				if legacy > 0 {
					h.run(b, "sh", "-ec", "iptables-legacy-restore <<end\n"+text+"end")
				}
			}
			for b.Loop() {
				h.unreported()
			}
		})
	}
}

// BenchmarkDeciders reads 10,000 rules and sets with 5,000 elements, of which none decides, and
// follows the packets of a network through them.
func BenchmarkDeciders(b *testing.B) {
	h := openTestHost(b)
	var text strings.Builder
	text.WriteString("table inet large {\n\tset many { type ipv4_addr; elements = { ")
	for i := range 5000 {
		fmt.Fprintf(&text, "10.%d.%d.%d, ", i>>16, i>>8&255, i&255)
	}
	text.WriteString("} }\n\tchain c {\n\t\ttype filter hook forward priority 0;\n\t\tiifname eth7 ip saddr @many drop\n")
	for i := range 10_000 {
		fmt.Fprintf(&text, "\t\tiifname eth7 ip daddr 192.0.%d.%d tcp dport 443 accept\n", i>>8&255, i&255)
	}
	text.WriteString("\t}\n}\n")
	file := filepath.Join(b.TempDir(), "rules")
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		b.Fatal(err)
	}
	h.run(b, "nft", "-f", file)
	h.run(b, "sh", "-ec", "ip link add up0 type veth peer name up1; ip link set up0 up; ip link set up1 up")
	path := rules.Path{Senders: netip.MustParsePrefix("172.30.0.0/24"), Router: "fl-net", Ports: []string{"fv-web"}}
	for b.Loop() {
		if why, err := h.Deciders(b.Context(), []rules.Path{path}); err != nil || why[0].Text != "" {
			b.Fatal(why, err)
		}
	}
}
