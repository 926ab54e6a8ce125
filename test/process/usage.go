package process

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// CPU returns how many seconds of a processor a process has used. The kernel counts them in
// hundredths.
func CPU(t testing.TB, pid int) float64 {
	t.Helper()
	fields := strings.Fields(proc(t, pid, "stat"))
	return (number(t, fields[13]) + number(t, fields[14])) / 100
}

// Memory returns a field of a process's status that is a size, for example VmRSS, in MB.
func Memory(t testing.TB, pid int, field string) float64 {
	t.Helper()
	found := regexp.MustCompile(field + `:\s+(\d+) kB`).FindStringSubmatch(proc(t, pid, "status"))
	if found == nil {
		t.Fatalf("process %d has no %s", pid, field)
	}
	return number(t, found[1]) * 1024 / 1e6
}

// proc reads a file of a process in /proc.
func proc(t testing.TB, pid int, name string) string {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func number(t testing.TB, text string) float64 {
	t.Helper()
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
