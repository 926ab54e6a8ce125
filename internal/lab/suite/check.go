package suite

import (
	"fmt"
	"slices"
	"strings"

	"fairlead/internal/lab/result"
)

// LeaveUnreached removes the paths that none of the suite's clients can use, except
// the baseline.
func (s *Suite) LeaveUnreached() {
	s.Paths = slices.DeleteFunc(slices.Clone(s.Paths), func(name string) bool {
		p, _ := FindPath(name)
		return name != s.Baseline && !slices.ContainsFunc(s.Clients, p.Reaches)
	})
}

// Check returns an error if the suite has a path that nothing can be measured on,
// or a baseline that something cannot be compared with.
func (s Suite) Check() error {
	if err := s.conditions(); err != nil {
		return err
	}
	if err := s.reached(); err != nil {
		return err
	}
	return s.supported()
}

// reached returns an error for a path that none of the clients can use, and for a
// baseline that one of the clients cannot use: its results would have no
// comparison.
func (s Suite) reached() error {
	for _, name := range s.Paths {
		p, _ := FindPath(name)
		var by, notBy []string
		for _, c := range s.Clients {
			if p.Reaches(c) {
				by = append(by, string(c))
			} else {
				notBy = append(notBy, string(c))
			}
		}
		if len(by) == 0 || len(notBy) > 0 && name == s.Baseline {
			return fmt.Errorf("path %s cannot be used from the client %s: choose --client of %s, or another path or "+
				"--baseline",
				name, strings.Join(notBy, ", "), strings.Join(p.clients(), ", "))
		}
	}
	return nil
}

// supported returns an error for a workload that the baseline does not support,
// because its results would have no comparison; and for a path that supports none
// of the workloads.
func (s Suite) supported() error {
	for _, name := range s.Paths {
		p, _ := FindPath(name)
		var not []string
		bare := false // a workload would have no comparison
		for _, w := range s.Workloads {
			if !p.Supports(w) {
				not = append(not, w.Name)
				bare = bare || w.Event == "" && name == s.Baseline
			}
		}
		if len(not) == len(s.Workloads) || bare {
			return fmt.Errorf("path %s does not support the workload %s: choose another --workload, path or "+
				"--baseline", name, strings.Join(not, ", "))
		}
	}
	return nil
}

// clients lists the clients that can use the path.
func (p Path) clients() []string {
	var names []string
	for _, c := range result.Clients {
		if p.Reaches(c) {
			names = append(names, string(c))
		}
	}
	return names
}
