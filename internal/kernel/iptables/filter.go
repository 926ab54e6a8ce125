package iptables

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"fairlead/internal/kernel/rtnl"
	"fairlead/internal/kernel/rules"
	"fairlead/internal/plan"

	"golang.org/x/sys/unix"
)

// The chains of an iptables filter table that Fairlead uses.
const (
	chainForward    = "FORWARD"
	chainDockerUser = "DOCKER-USER"
)

// baseChains are the base chains of the table, with their hooks.
var baseChains = map[string]string{"INPUT": "input", chainForward: "forward", "OUTPUT": "output"}

// filterChains are the chains that filterTable reads.
var filterChains = []string{"INPUT", chainForward, "OUTPUT", chainDockerUser, plan.FilterName, plan.FilterExits}

// Firewalls returns the filter tables in which Docker drops forwarded packets, of
// iptables-nft and of iptables-legacy. It returns none if Options.LeaveDocker is
// set.
func (h *Handle) Firewalls() ([]plan.Firewall, error) {
	if h.leaveDocker {
		return nil, nil
	}
	var found []plan.Firewall
	err := h.eachFilter(func(f plan.Firewall, t rules.Ruleset) error {
		forward, ok := t.Find(filterTableName(f), chainForward)
		user, docker := t.Find(filterTableName(f), chainDockerUser)
		if !ok || !docker || forward.Policy != rules.Drop || !isIPTables(f, t) {
			return nil
		}
		if _, err := iptables(f, "restore"); err != nil {
			return nil // `fairlead doctor` explains it in its finding not-forwarded
		}
		f.Chain, f.Place = chainForward, place(forward)
		if slices.ContainsFunc(forward.Rules,
			func(r rules.Rule) bool { return r.Action == rules.Jump && r.Chain == chainDockerUser }) {
			f.Chain, f.Place = chainDockerUser, place(user)
		}
		found = append(found, f)
		return nil
	})
	if err != nil || len(found) == 0 {
		return nil, err
	}
	exits, err := h.exits()
	for i := range found {
		found[i].Exits = strings.Join(exits, " ")
	}
	return found, err
}

// isIPTables reports whether the base chains are those of iptables. Another program may
// have made chains with their names in a table with this name, and then neither Docker
// nor Fairlead can change the table with iptables.
func isIPTables(f plan.Firewall, t rules.Ruleset) bool {
	for name, hook := range baseChains {
		c, exists := t.Find(filterTableName(f), name)
		if exists && (c.Hook != hook || c.Type != "filter" || c.Priority != 0) {
			return false
		}
	}
	return true
}

// place returns the rule number that Fairlead's jump should have in the chain: the
// end, or before a final unconditional RETURN.
func place(c rules.Chain) int {
	others := slices.DeleteFunc(slices.Clone(c.Rules), isOurJump)
	n := len(others)
	if n > 0 && others[n-1].Action == rules.Return && len(others[n-1].Conditions) == 0 && !others[n-1].Partial {
		n--
	}
	return n + 1
}

func isOurJump(r rules.Rule) bool { return r.Action == rules.Jump && r.Chain == plan.FilterName }

// exits returns the host's links through which sandboxes may reach other networks.
// These are the links that the host routes packets through, without Fairlead's own,
// and without the bridges of other container engines and of virtual machines, which
// isolate their networks. A bridge counts as an uplink if it has the default route
// or a port that is neither a veth nor a tap link. Links whose names iptables cannot
// express are left out.
func (h *Handle) exits() ([]string, error) {
	links, err := h.rtnl.ListLinks("")
	if err != nil {
		return nil, err
	}
	uplink, routing := map[int]bool{}, map[int]bool{0: true}
	for _, l := range links {
		a := l.Attrs()
		routing[a.Index] = l.Type() == "vrf"
		if l.Type() != string(plan.Veth) && l.Type() != "tuntap" && !rtnl.Ours(l) {
			uplink[a.MasterIndex] = true
		}
	}
	defaults, err := h.rtnl.DefaultRoutes()
	if err != nil {
		return nil, err
	}
	for _, r := range defaults {
		uplink[r.LinkIndex] = true
	}
	var names []string
	for _, l := range links {
		a := l.Attrs()
		isPort := a.MasterIndex != 0 && !routing[a.MasterIndex]
		isForeignBridge := l.Type() == string(plan.Bridge) && !uplink[a.Index]
		linked := a.RawFlags&unix.IFF_LOOPBACK == 0 && !rtnl.Ours(l) && !isPort && !isForeignBridge
		if linked && isExact(a.Name) {
			names = append(names, a.Name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// isExact reports whether iptables-restore reads the name of a link as this name. The
// kernel accepts nearly any name, and iptables has quotes, options and wildcards.
func isExact(name string) bool {
	return !strings.HasPrefix(name, "-") && !strings.ContainsFunc(name, func(c rune) bool {
		return !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
			strings.ContainsRune("-_.@", c))
	})
}

// SetFilter creates Fairlead's chains and the jump in one transaction.
func (h *Handle) SetFilter(f plan.FilterChain) error {
	t, err := h.filterTable(f.Firewall)
	if err != nil {
		return err
	}
	return h.restore(f.Firewall, f.Restore(ourJumps(f.Firewall, t)))
}

// DelFilter removes Fairlead's chains and the jumps to them.
func (h *Handle) DelFilter(f plan.FilterChain) error {
	t, err := h.filterTable(f.Firewall)
	if err != nil || !hasOurs(f.Firewall, t) {
		return err
	}
	return h.restore(f.Firewall, f.Unrestore(ourJumps(f.Firewall, t)))
}

// ourJumps returns the iptables-restore commands that delete the jumps to
// Fairlead's chain.
func ourJumps(f plan.Firewall, t rules.Ruleset) []string {
	var all []string
	for _, name := range []string{chainForward, chainDockerUser} {
		c, _ := t.Find(filterTableName(f), name)
		for i, r := range slices.Backward(c.Rules) {
			if isOurJump(r) {
				all = append(all, fmt.Sprintf("-D %s %d", name, i+1))
			}
		}
	}
	return all
}

func hasOurs(f plan.Firewall, t rules.Ruleset) bool {
	_, accepts := t.Find(filterTableName(f), plan.FilterName)
	_, exits := t.Find(filterTableName(f), plan.FilterExits)
	return accepts || exits
}

// ReadFilter returns the wanted object if the kernel has exactly its chains. If the
// kernel has only parts of them, it returns an object that differs.
func (h *Handle) ReadFilter(want plan.FilterChain) (plan.Object, error) {
	t, err := h.filterTable(want.Firewall)
	if err != nil || !hasOurs(want.Firewall, t) {
		return nil, err
	}
	if hasFilter(want, t) {
		return want, nil
	}
	return plan.FilterChain{Firewall: plan.Firewall{V4: want.V4, Legacy: want.Legacy}}, nil
}

// hasFilter reports whether the table contains the chains, and the jump at its
// place.
func hasFilter(want plan.FilterChain, t rules.Ruleset) bool {
	table := filterTableName(want.Firewall)
	wanted := rules.Saved(filterFamily(want.V4), want.Restore(nil))
	for _, name := range []string{plan.FilterName, plan.FilterExits} {
		have, _ := t.Find(table, name)
		should, _ := wanted.Find(filterFamily(want.V4)+" filter"+rules.LegacyMark, name)
		if !slices.EqualFunc(have.Rules, should.Rules, sameRule) {
			return false
		}
	}
	for _, name := range []string{chainForward, chainDockerUser} {
		c, _ := t.Find(table, name)
		for i, r := range c.Rules {
			if isOurJump(r) != (name == want.Chain && i+1 == want.Place) {
				return false
			}
		}
		if name == want.Chain && len(c.Rules) < want.Place {
			return false
		}
	}
	return true
}

// sameRule compares two rules without their handles. The programs of iptables write the
// conditions of a rule in different orders.
func sameRule(a, b rules.Rule) bool {
	a.Handle, b.Handle = 0, 0
	a.Conditions, b.Conditions = ordered(a.Conditions), ordered(b.Conditions)
	return reflect.DeepEqual(a, b)
}

func ordered(conditions []rules.Condition) []rules.Condition {
	return slices.SortedFunc(slices.Values(conditions),
		func(a, b rules.Condition) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
}

// LeftoverFilters returns Fairlead's chains that are in no plan.
func (h *Handle) LeftoverFilters(known map[string]bool) (plan.Plan, error) {
	var found plan.Plan
	err := h.eachFilter(func(f plan.Firewall, t rules.Ruleset) error {
		if o := (plan.FilterChain{Firewall: f}); hasOurs(f, t) && !known[o.Key()] {
			found = append(found, o)
		}
		return nil
	})
	return found, err
}

// eachFilter calls fn with each iptables filter table of the host.
func (h *Handle) eachFilter(fn func(plan.Firewall, rules.Ruleset) error) error {
	for _, f := range []plan.Firewall{{V4: true}, {}, {V4: true, Legacy: true}, {Legacy: true}} {
		t, err := h.filterTable(f)
		if err == nil && len(t) > 0 {
			err = fn(f, t)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func filterFamily(v4 bool) string {
	if v4 {
		return "ip"
	}
	return "ip6"
}

// filterTableName returns the table's name in package rules.
func filterTableName(f plan.Firewall) string {
	name := filterFamily(f.V4) + " filter"
	if f.Legacy {
		name += rules.LegacyMark
	}
	return name
}

// filterTable reads the filterChains of a table. It returns none if the host does
// not have the table.
func (h *Handle) filterTable(f plan.Firewall) (rules.Ruleset, error) {
	if f.Legacy {
		return h.legacyFilter(f.V4)
	}
	return retryRules(func() (rules.Ruleset, error) { return h.nft.FilterChains(f.V4, filterChains) })
}

// retryRules repeats a dump that was interrupted by a change.
func retryRules(read func() (rules.Ruleset, error)) (rules.Ruleset, error) {
	for range 10 {
		t, err := read()
		if !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.ENOENT) {
			return t, err
		}
	}
	return read()
}

// restore changes a filter table with iptables-restore. Docker uses the same
// program, so the rules stay readable for Docker and for the user.
func (h *Handle) restore(f plan.Firewall, text string) error {
	program, err := iptables(f, "restore")
	if err != nil {
		return err
	}
	return h.ns.Do(func() error {
		cmd := exec.Command(program, "--noflush", "--wait")
		cmd.Stdin = strings.NewReader(text)
		if out, err := cmd.CombinedOutput(); err != nil {
			said := strings.ReplaceAll(strings.TrimSpace(string(out)), "\n", "; ")
			return fmt.Errorf("run %s: %w: %s", filepath.Base(program), err, said)
		}
		return nil
	})
}

// iptables returns the path of iptables-save or iptables-restore, for the table's
// family and variant (nft or legacy). Action is "restore" or "save".
func iptables(f plan.Firewall, action string) (string, error) {
	tool := map[bool]string{true: "iptables", false: "ip6tables"}[f.V4]
	variant := map[bool]string{true: "-legacy", false: "-nft"}[f.Legacy]
	for _, name := range []string{tool + variant + "-" + action, tool + "-" + action} {
		for _, dir := range []string{"", "/usr/sbin/", "/sbin/"} {
			if path, err := exec.LookPath(dir + name); err == nil {
				return path, nil
			}
		}
	}
	return "", fmt.Errorf("find %s%s-%s: not found: install iptables", tool, variant, action)
}
