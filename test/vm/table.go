package vm

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Table returns the Markdown table of the figures in a file.
func Table(file string) ([]byte, error) {
	all, err := readAll(file)
	if err != nil {
		return nil, err
	}
	return tableOf(all), nil
}

// readAll reads a file with figures by kernel.
func readAll(file string) (all map[string]Figures, err error) {
	content, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(content, &all)
	}
	if err != nil {
		return nil, fmt.Errorf("read instructions: %w", err)
	}
	return all, nil
}

// tableOf returns the Markdown table of figures by kernel: the number of instructions of each operation and, except for
// host, its ratio to that of host.
func tableOf(all map[string]Figures) []byte {
	kernels := slices.SortedFunc(maps.Keys(all), compareVersions)
	var out bytes.Buffer
	out.WriteString("| path |")
	for _, k := range kernels {
		for _, o := range Operations {
			fmt.Fprintf(&out, " %s, Linux %s |", o, k)
		}
	}
	fmt.Fprintf(&out, "\n|---|%s\n", strings.Repeat("---|", len(kernels)*len(Operations)))
	for _, path := range pathsOf(all) {
		fmt.Fprintf(&out, "| `%s` |", path)
		for _, k := range kernels {
			for _, o := range Operations {
				fmt.Fprintf(&out, " %s |", all[k].cell(path, o))
			}
		}
		out.WriteString("\n")
	}
	return out.Bytes()
}

// compareVersions orders kernels by age: 6.1 is older than 6.12.
func compareVersions(a, b string) int {
	return slices.CompareFunc(strings.Split(a, "."), strings.Split(b, "."), func(a, b string) int {
		x, _ := strconv.Atoi(a)
		y, _ := strconv.Atoi(b)
		return x - y
	})
}

// pathsOf lists the paths: host, then the others by what they add to a round trip.
func pathsOf(all map[string]Figures) []string {
	cost := map[string]int{}
	for _, f := range all {
		for path, figures := range f.Paths {
			cost[path] = max(cost[path], figures[RoundTrip])
		}
	}
	cost[baseline] = 0
	return slices.SortedFunc(maps.Keys(cost), func(a, b string) int { return cost[a] - cost[b] })
}

// baseline is the path that the others are compared with.
const baseline = "host"

// cell returns a figure with its ratio to host.
func (f Figures) cell(path string, o Operation) string {
	n := f.Paths[path][o]
	if n == 0 {
		return ""
	}
	text := grouped(n)
	if path != baseline {
		text += fmt.Sprintf(" (%.2f)", float64(n)/float64(f.Paths[baseline][o]))
	}
	return text
}

// grouped writes a number with a comma between thousands.
func grouped(n int) string {
	if n < 1000 {
		return strconv.Itoa(n)
	}
	return fmt.Sprintf("%s,%03d", grouped(n/1000), n%1000)
}
