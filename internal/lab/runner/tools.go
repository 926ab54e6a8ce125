package runner

import (
	"fmt"

	"fairlead/internal/lab/result"
	"fairlead/internal/lab/suite"
)

// Tools lists the foreign generators that can be driven.
func Tools() []string { return []string{"iperf3", "qperf", "sockperf"} }

// ToolMissing says that a tool is not installed.
func ToolMissing(tool string) error {
	if _, err := lookPath(tool); err != nil {
		return fmt.Errorf("%s is not installed: it is Debian's package of the same name", tool)
	}
	return nil
}

// Cases lists what a session of the suite measures, as far as it can be told
// before anything is built.
func Cases(s suite.Suite, tools []string) []result.Case {
	var all []result.Case
	for _, c := range s.Clients {
		for _, w := range s.Workloads {
			for _, name := range s.Paths {
				p, _ := suite.FindPath(name)
				if !p.Reaches(c) {
					continue
				}
				all = append(all, result.Case{Path: name, Client: c, Workload: w.Name, Tool: "fairlead"})
				for _, t := range tools {
					if foreignRunner(t, w) != nil {
						all = append(all, result.Case{Path: name, Client: c, Workload: w.Name, Tool: t})
					}
				}
			}
		}
	}
	return all
}

// foreignRunner drives a real tool with a workload, nil when the tool has
// nothing like it.
func foreignRunner(tool string, w suite.Workload) workloadRunner { return nil }
