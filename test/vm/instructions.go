package vm

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Operation is what the program test/vm/instructions counts the instructions of.
type Operation string

// The operations: one byte in each direction of a TCP connection; a TCP connection with one byte in each direction,
// from connect to close; one UDP datagram in one direction.
const (
	RoundTrip  Operation = "round trip"
	Connection Operation = "connection"
	Packet     Operation = "packet"
)

// Operations lists them, in the order of tables.
var Operations = []Operation{RoundTrip, Connection, Packet}

// WithFlowtable ends the name of a path to which an nftables flowtable is added.
const WithFlowtable = "+flowtable"

// Count is a line that the program prints.
type Count struct {
	Path         string
	Operation    Operation
	Instructions int
}

// Figures are the instructions of the operations on each path, on one kernel.
type Figures struct {
	// Release is the kernel's release.
	Release string `json:"release"`
	// Paths are the figures by path and operation.
	Paths map[string]map[Operation]int `json:"paths"`
}

// ReadFigures reads the program's output: the kernel's release in the first line, then the counts.
func ReadFigures(said string) (Figures, error) {
	release, rest, _ := strings.Cut(said, "\n")
	f := Figures{Release: release, Paths: map[string]map[Operation]int{}}
	for line := range strings.Lines(rest) {
		if !strings.HasPrefix(line, "{") {
			continue
		}
		var c Count
		if err := json.Unmarshal([]byte(line), &c); err != nil {
			return f, fmt.Errorf("read the line %q: %w", line, err)
		}
		if f.Paths[c.Path] == nil {
			f.Paths[c.Path] = map[Operation]int{}
		}
		f.Paths[c.Path][c.Operation] = c.Instructions
	}
	return f, nil
}

// Lower lowers the figures to those of another count of the same paths on the same kernel, where the others are lower.
func (f Figures) Lower(other Figures) {
	for path, operations := range f.Paths {
		for o, count := range operations {
			operations[o] = min(count, other.Paths[path][o])
		}
	}
}

// maxRise is the rise of a figure that is still accepted, as a ratio. Repeated runs differ by much less.
const maxRise = 1.02

// Rises compares new figures with accepted ones, and returns a line for each that has risen by more than maxRise. If
// the kernel's release is another one, the ratios to the path host are compared, because the kernel's own work may have
// changed. A path without accepted figures is a line, too.
func Rises(accepted, measured Figures) []string {
	var lines []string
	for _, path := range slices.Sorted(maps.Keys(measured.Paths)) {
		for _, o := range Operations {
			was, is := float64(accepted.Paths[path][o]), float64(measured.Paths[path][o])
			if was == 0 {
				lines = append(lines, fmt.Sprintf("%s, %s: there is no accepted figure", path, o))
				continue
			}
			unit, digits := "instructions", 0
			if accepted.Release != measured.Release {
				unit, digits = "times those of host", 2
				was, is = was/float64(accepted.Paths[baseline][o]), is/float64(measured.Paths[baseline][o])
			}
			if is > maxRise*was {
				lines = append(lines, fmt.Sprintf("%s, %s: %.*f %s, %.1f %% more than the accepted %.*f", path, o, digits, is,
					unit, 100*(is/was-1), digits, was))
			}
		}
	}
	return lines
}
