package truth_test

import (
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"fairlead/internal/child"
	"fairlead/test/truth"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
)

func TestMain(m *testing.M) {
	child.Dispatch(child.Roles{truth.ServerRole: truth.Serve})
	os.Exit(m.Run())
}

// atOnce is how many hosts are tested in parallel: most of the time is spent waiting for
// answers that do not come.
const atOnce = 8

// floor is the share of flows over named hosts that must be explained with certainty.
const floor = 0.7

// count counts the judgements.
type count struct {
	sync.Mutex
	hosts int
	of    map[truth.Judgement]int
}

func (c *count) add(all []truth.Checked) {
	c.Lock()
	defer c.Unlock()
	c.hosts++
	for _, f := range all {
		if c.of == nil {
			c.of = map[truth.Judgement]int{}
		}
		c.of[f.Judgement]++
	}
}

// total returns the number of flows, and the share of those that are unknown.
func (c *count) total() (flows int, unknown float64) {
	flows = c.of[truth.Right] + c.of[truth.Unknown] + c.of[truth.Wrong]
	return flows, float64(c.of[truth.Unknown]) / float64(max(flows, 1))
}

// together runs fn for each number below n, some of them in parallel.
func together(n int, fn func(int)) {
	var running sync.WaitGroup
	slots := make(chan struct{}, atOnce)
	for i := range n {
		slots <- struct{}{}
		running.Go(func() { defer func() { <-slots }(); fn(i) })
	}
	running.Wait()
}

// TestNamedHosts explains flows over hosts that scripts set up, and compares each verdict
// with the fate of a real packet: no certain verdict may be wrong.
func TestNamedHosts(t *testing.T) {
	var counted count
	together(len(cases), func(i int) {
		t.Run(cases[i].name, func(t *testing.T) { counted.add(cases[i].check(t)) })
	})
	flows, unknown := counted.total()
	t.Logf("%d flows over %d hosts: %v", flows, counted.hosts, counted.of)
	if counted.hosts < len(cases) { // -run has left out cases
		return
	}
	if flows < 120 || 1-unknown < floor {
		t.Errorf("%d flows, %.0f %% of them explained with certainty: want 120, and %.0f %%", flows, 100*(1-unknown),
			100*floor)
	}
}

// check builds the host and checks its flows.
func (c named) check(t *testing.T) []truth.Checked {
	h := truth.Build(t, c.commands())
	if err := h.Places["host"].Do(func() error { return dropAt(t, c.drop) }); err != nil {
		t.Fatal(err)
	}
	dropPackets(t, h.Dropping)
	all := h.Explain(t, c.flows)
	for _, f := range all {
		t.Log(f)
		if f.Judgement == truth.Wrong {
			t.Errorf("%s: it is %s %s, but the explanation is: %s\n%s", f.Text, f.Fate.Result, f.Fate.By, f.Verdict,
				truth.Path(f.Explanation))
		}
		if reason := c.reasons[f.Text]; reason != "" && (!f.Certain() || !strings.Contains(f.Verdict, reason)) {
			t.Errorf("%s: the verdict is %q (certain: %v), want %q in it", f.Text, f.Verdict, f.Certain(), reason)
		}
		if want, ok := c.judged[f.Text]; ok && f.Judgement != want {
			t.Errorf("%s: the verdict is %s, want it to be %s", f.Text, f.Judgement, want)
		}
	}
	return all
}

// dropAt attaches a program that drops everything to links of the thread's namespace.
func dropAt(t *testing.T, links []string) error {
	for _, name := range links {
		l, err := net.InterfaceByName(name)
		if err != nil {
			return err
		}
		const drop = 2 // TC_ACT_SHOT
		prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "GPL",
			Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, drop), asm.Return()}})
		if err != nil {
			return err
		}
		defer prog.Close()
		at, err := link.AttachTCX(link.TCXOptions{Interface: l.Index, Program: prog, Attach: ebpf.AttachTCXIngress})
		if err != nil {
			return err
		}
		t.Cleanup(func() { at.Close() })
	}
	return nil
}

// dropPackets attaches a program to cgroups that drops all packets to sockets of them and of the
// cgroups below them, as systemd does for IPAddressDeny=any.
func dropPackets(t *testing.T, cgroups []string) {
	t.Helper()
	for _, path := range cgroups {
		prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "deny_all", Type: ebpf.CGroupSKB,
			AttachType: ebpf.AttachCGroupInetIngress, License: "GPL",
			Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()}})
		if err != nil {
			t.Fatal(err)
		}
		defer prog.Close()
		at, err := link.AttachCgroup(link.CgroupOptions{Path: path, Attach: ebpf.AttachCGroupInetIngress,
			Program: prog})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { at.Close() })
	}
}

// number returns an environment variable as a number.
func number(t *testing.T, variable string, preset int) int {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return preset
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("read %s: %v", variable, err)
	}
	return n
}
