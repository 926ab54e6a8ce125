// Package attack_test tests the table of threats: every cell says whether an
// attack has an effect, and real packets on the real kernel must show the same.
// Attackers forge packets with raw sockets.
package attack_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"fairlead/internal/child"
	"fairlead/internal/model"
	"fairlead/internal/plan"
	"fairlead/internal/proxy"
	"fairlead/internal/threat"
	"fairlead/test/features"
)

func TestMain(m *testing.M) {
	child.Dispatch(child.Roles{proxy.Role: proxy.Main})
	os.Exit(m.Run())
}

// flavor is a kind of packet. The protocol is empty where it does not matter.
type flavor struct {
	v4    bool
	proto model.Proto
}

func (f flavor) String() string {
	return map[bool]string{true: "IPv4", false: "IPv6"}[f.v4] + " " + string(f.proto)
}

var (
	each     = []flavor{{true, model.TCP}, {true, model.UDP}, {false, model.TCP}, {false, model.UDP}}
	onlyTCP  = []flavor{{true, model.TCP}, {false, model.TCP}}
	onlyUDP  = []flavor{{true, model.UDP}, {false, model.UDP}}
	families = []flavor{{v4: true}, {}}
	onlyIPv4 = []flavor{{v4: true}}
	onlyIPv6 = []flavor{{}}
)

// result is the result of an attack.
type result struct {
	effect bool
	// because describes the evidence.
	because string
	// err is set if the prober could not decide.
	err error
}

// prober executes an attack.
type prober struct {
	flavors []flavor
	attack  func(*world, threat.Cell, flavor) result
}

var probers = map[threat.Attack]prober{
	threat.AdvertiseHost:      {onlyIPv6, advertiseHost},
	threat.AdvertiseContainer: {onlyIPv6, advertiseContainer},
	threat.Redirect:           {families, redirect},
	threat.TakeAddress:        {families, takeAddress},
	threat.SpoofContainer:     {onlyUDP, spoofContainer},
	threat.ServeDHCP:          {onlyIPv4, serveDHCP},
	threat.TagVLAN:            {onlyUDP, tagVLAN},
	threat.SourceRoute:        {onlyUDP, sourceRoute},
	threat.Fragment:           {onlyUDP, fragment},
	threat.Unpublished:        {each, unpublished},
	threat.Hijack:             {each, hijack},
	threat.Block:              {each, block},
	threat.BlockNeighbor:      {each, blockNeighbor},
	threat.BlockLoopback:      {each, blockLoopback},
	threat.AnySource:          {each, anySource},
	threat.Inject:             {onlyUDP, inject},
	threat.HostSource:         {each, hostSource},
	threat.ForgeError:         {onlyUDP, forgeError},
	threat.Flood:              {onlyTCP, flood},
	threat.Loop:               {onlyUDP, loop},
	threat.Overhear:           {each, overhear},
	threat.Impersonate:        {onlyUDP, impersonate},
	threat.Answer:             {onlyUDP, answer},
	threat.BreakOff:           {onlyUDP, breakOff},
	threat.Enter:              {each, enter},
	threat.Leak:               {each, leak},
}

// TestAttacks executes every attack of the table on networks without settings.
func TestAttacks(t *testing.T) { newWorld(t).execute() }

// TestAttacksWithOutboundEBPF executes every attack on a bridge network whose outbound
// connections the eBPF programs translate. Those on endpoints and published ports have the
// same results as without the setting.
func TestAttacksWithOutboundEBPF(t *testing.T) {
	w := prepare(t, threat.OutboundEBPF)
	w.set()
	w.execute()
}

// TestAttacksWithFlowtable executes the attacks on networks with a flowtable, on what the host
// forwards. A kernel without flowtables refuses them.
func TestAttacksWithFlowtable(t *testing.T) {
	w := prepare(t, threat.Flowtable)
	if missing := features.Facts(t).Missing[plan.FeatureFlowtable]; missing != "" {
		if _, err := w.host.Engine.Set(t.Context(), w.state); err == nil || !strings.Contains(err.Error(), missing) {
			t.Errorf("the networks are created on a kernel without flowtables: %v", err)
		}
		return
	}
	w.set()
	for _, d := range w.drivers {
		for _, f := range each {
			w.bypass(threat.Cell{Driver: d}, f)
		}
	}
	w.execute()
}

// cells returns the cells of the table that are about the world's networks.
func (w *world) cells() []threat.Cell {
	return slices.DeleteFunc(threat.Table(), func(c threat.Cell) bool {
		return !slices.Contains(w.drivers, c.Driver) || c.Attack.IsOutbound() && c.Setting != w.setting ||
			w.setting == threat.Flowtable && !isForwarded(c)
	})
}

// isForwarded reports whether the cell is about packets that the host forwards: not about those
// of a proxy, of eBPF programs, or within one link.
func isForwarded(c threat.Cell) bool {
	return c.Attack.IsOutbound() || c.Via == model.ViaNAT ||
		slices.Contains([]threat.Attack{threat.SourceRoute, threat.Fragment, threat.Unpublished}, c.Attack)
}

// execute executes the attacks of the cells.
func (w *world) execute() {
	t, table := w.t, w.cells()
	t.Helper()
	for _, c := range table {
		if _, ok := probers[c.Attack]; !ok {
			t.Fatalf("no prober for %q", c.Attack)
		}
	}
	var failed []string
	var mu sync.Mutex
	// Attacks of one kind disturb those of another. They therefore run one after the other, with
	// all cells of one attack at once.
	for attack, cells := range byAttack(table) {
		began := time.Now()
		var wg sync.WaitGroup
		for _, c := range cells {
			for _, f := range probers[c.Attack].flavors {
				wg.Go(func() {
					if mismatch := judge(c, f, probers[c.Attack].attack(w, c, f)); mismatch != "" {
						mu.Lock()
						defer mu.Unlock()
						failed = append(failed, mismatch)
					}
				})
			}
		}
		wg.Wait()
		t.Logf("%s: %s", attack, time.Since(began).Round(time.Millisecond))
	}
	slices.Sort(failed)
	for _, mismatch := range failed {
		t.Error(mismatch)
	}
	t.Logf("%d cells tested", len(table))
}

// byAttack yields the cells of each attack, in the table's order.
func byAttack(table []threat.Cell) func(func(threat.Attack, []threat.Cell) bool) {
	return func(yield func(threat.Attack, []threat.Cell) bool) {
		for len(table) > 0 {
			attack := table[0].Attack
			n := slices.IndexFunc(table, func(c threat.Cell) bool { return c.Attack != attack })
			if n < 0 {
				n = len(table)
			}
			if !yield(attack, table[:n]) {
				return
			}
			table = table[n:]
		}
	}
}

// judge returns the difference between the table and the observed result; empty if they agree.
func judge(c threat.Cell, f flavor, got result) string {
	at := strings.TrimSpace(fmt.Sprintf("%s %s%s, %s: %s: %s", c.Driver, c.Via, c.Setting, f, c.Attacker, c.Attack))
	can := c.Can && !(c.IPv6Only && f.v4)
	switch {
	case got.err != nil:
		return fmt.Sprintf("%s: the prober failed: %v", at, got.err)
	case got.effect && !can:
		return fmt.Sprintf("%s: it has an effect: %s", at, got.because)
	case !got.effect && can:
		return fmt.Sprintf("%s: it has no effect, but the table says that it has: %s", at, got.because)
	}
	return ""
}

// TestWrongCellIsReported inverts every cell of the table.
func TestWrongCellIsReported(t *testing.T) {
	for _, c := range threat.Table() {
		if mismatch := judge(c, flavor{}, result{effect: c.Can}); mismatch != "" {
			t.Errorf("a correct cell is reported as wrong: %s", mismatch)
		}
		if judge(c, flavor{}, result{effect: !c.Can}) == "" {
			t.Errorf("a wrong cell is not reported: %+v", c)
		}
	}
}
