package load

import (
	"maps"
	"slices"
)

// Workloads lists all of them.
func Workloads() []Workload { return slices.Sorted(maps.Keys(workloads)) }
