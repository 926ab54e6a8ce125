package vm

import (
	"slices"
	"strings"
	"testing"
)

// TestFlowtable runs the daemon's test of flowtables, which the host's kernel may lack.
func TestFlowtable(t *testing.T) {
	t.Parallel()
	for name, kernel := range map[string]Kernel{"6.1": debian(t), "6.12": backported(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			modules := slices.Concat(networking, []string{"nf_flow_table_inet", "nft_flow_offload"})
			m := Machine{Kernel: kernel, Modules: modules, Tools: []string{"bridge", "cat", "grep", "ip", "ls", "mkdir",
				"nft", "sed", "sh", "sleep", "sort", "ss", "sysctl", "tc"}}
			said, err := m.Test(t.Context(), "fairlead/internal/daemon", "-test.run=^TestFlowtable$")
			if err != nil || strings.Count(said, "    --- PASS: TestFlowtable/") != 2 {
				t.Fatalf("%v\n%s", err, said)
			}
		})
	}
}
