package vm

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
)

var (
	whole  = flag.Bool("whole", false, "count the instructions of all paths on all kernels, not only those that CI compares")
	accept = flag.Bool("accept", false, "with -whole, write the counted instructions to "+accepted)
	format = flag.String("format", "markdown", "with -whole, print the counted instructions as markdown or json")
)

// accepted is the file with the accepted figures by kernel.
const accepted = "testdata/instructions.json"

// compared is the kernel whose figures are compared.
const compared = "6.12"

// boots is how often the instructions are counted on a kernel with -whole; the lowest figures count. On Linux 6.1, the
// instructions of a connection vary from boot to boot: those of host by 15 % once in four boots.
var boots = map[string]int{"6.1": 4, compared: 1}

// counted are the paths that CI counts, on that kernel only, because the time of CI is limited. others are those that
// are counted in addition.
var (
	counted = []string{"host", "ebpf", "outbound-ebpf", "nat", "routed"}
	others  = []string{"bridge", "nat" + WithFlowtable, "routed" + WithFlowtable, "hand-dnat", "hop-veth"}
)

// TestInstructions counts the instructions of paths, and compares them with the accepted figures.
func TestInstructions(t *testing.T) {
	t.Parallel()
	all, err := readAll(accepted)
	if err != nil {
		t.Fatal(err)
	}
	paths, kernels := counted, map[string]Kernel{compared: backported(t)}
	if *whole {
		paths, kernels["6.1"] = slices.Concat(counted, others), debian(t)
	}
	measured := map[string]Figures{}
	var mu sync.Mutex
	t.Run("kernel", func(t *testing.T) {
		for name, kernel := range kernels {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				got := countInstructions(t, kernel, paths)
				for range boots[name] - 1 {
					got.Lower(countInstructions(t, kernel, paths))
				}
				mu.Lock()
				defer mu.Unlock()
				measured[name] = got
			})
		}
	})
	if t.Failed() {
		return
	}
	if *whole {
		printFigures(t, measured)
	}
	if *whole && *accept {
		writeFigures(t, measured)
		return
	}
	for _, rise := range Rises(all[compared], measured[compared]) {
		t.Errorf("Linux %s: %s", compared, rise)
	}
	if t.Failed() {
		t.Log("If the rise is intended, accept it with `make instructions INSTRUCTIONS_FLAGS=-accept`, and say why in " +
			"the commit.")
	}
}

// printFigures prints the figures to standard output.
func printFigures(t *testing.T, all map[string]Figures) {
	t.Helper()
	if *format != "json" {
		fmt.Printf("%s", tableOf(all))
		return
	}
	content, err := json.MarshalIndent(all, "", "\t")
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("%s\n", content)
}

func countInstructions(t *testing.T, k Kernel, paths []string) Figures {
	t.Helper()
	binary, err := k.arch.build(t.Context(), "build", "fairlead/test/vm/instructions")
	if err != nil {
		t.Fatal(err)
	}
	modules := networking
	if slices.ContainsFunc(paths, func(p string) bool { return strings.HasSuffix(p, WithFlowtable) }) {
		modules = slices.Concat(networking, []string{"nf_flow_table_inet", "nft_flow_offload"})
	}
	m := Machine{Kernel: k, Hardened: true, Modules: modules, Tools: []string{"ip", "nft", "nsenter", "sh", "sysctl"}}
	defer begin(nil)()
	outcome := m.run(t.Context(), map[string][]byte{"/instructions": binary},
		[][]string{{"sh", "-ec", "read release </proc/sys/kernel/osrelease; echo $release; /instructions " +
			strings.Join(paths, " ")}})[0]
	if outcome.Err != nil {
		t.Fatalf("%v\n%s", outcome.Err, outcome.Said)
	}
	f, err := ReadFigures(outcome.Said)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		for _, o := range Operations {
			if f.Paths[path][o] <= 0 {
				t.Errorf("%s, %s has not been counted:\n%s", path, o, outcome.Said)
			}
		}
	}
	return f
}

func writeFigures(t *testing.T, all map[string]Figures) {
	t.Helper()
	content, err := json.MarshalIndent(all, "", "\t")
	if err == nil {
		err = os.WriteFile(accepted, append(content, '\n'), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestLower checks that the lower count of each operation stays.
func TestLower(t *testing.T) {
	f := Figures{"6.1", map[string]map[Operation]int{"nat": {RoundTrip: 10, Connection: 30}}}
	f.Lower(Figures{"6.1", map[string]map[Operation]int{"nat": {RoundTrip: 11, Connection: 20}}})
	if got := f.Paths["nat"]; got[RoundTrip] != 10 || got[Connection] != 20 {
		t.Errorf("the lower counts are %v", got)
	}
}

// TestRises checks which figures are refused.
func TestRises(t *testing.T) {
	figures := func(release string, host, nat int) Figures {
		of := func(n int) map[Operation]int { return map[Operation]int{RoundTrip: n, Connection: n, Packet: n} }
		return Figures{release, map[string]map[Operation]int{"host": of(host), "nat": of(nat)}}
	}
	was := figures("6.1", 10_000, 20_000)
	for name, c := range map[string]struct {
		is   Figures
		want string
	}{
		"the same":                      {was, ""},
		"within the limit":              {figures("6.1", 10_199, 20_399), ""},
		"fewer":                         {figures("6.1", 5_000, 10_000), ""},
		"more":                          {figures("6.1", 10_000, 20_401), "nat, packet: 20401 instructions, 2.0 % more"},
		"another kernel, all more":      {figures("6.2", 20_000, 40_000), ""},
		"another kernel, the path more": {figures("6.2", 20_000, 41_000), "nat, round trip: 2.05 times those of host"},
		"a new path":                    {Figures{"6.1", map[string]map[Operation]int{"new": {}}}, "no accepted figure"},
	} {
		got := strings.Join(Rises(was, c.is), "\n")
		if !strings.Contains(got, c.want) || c.want == "" && got != "" {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
