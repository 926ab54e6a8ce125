package kernel_test

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"fairlead/internal/kernel"

	"golang.org/x/sys/unix"
)

// TestProbeWithoutFiles probes the kernel in a process that can open few files more. It must report the limit of open
// files, and must not report that the kernel lacks features.
func TestProbeWithoutFiles(t *testing.T) {
	want, err := kernel.Probe()
	if err != nil {
		t.Fatal(err)
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	free, err := unix.Dup(int(os.Stderr.Fd())) // the lowest number that is free
	if err != nil {
		t.Fatal(err)
	}
	unix.Close(free)
	defer func() { _ = unix.Setrlimit(unix.RLIMIT_NOFILE, &limit) }()
	failures := 0
	for more := 4; more < 40; more += 3 {
		few := limit
		few.Cur = uint64(free + more)
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &few); err != nil {
			t.Fatal(err)
		}
		facts, err := kernel.Probe()
		switch {
		case err == nil && !reflect.DeepEqual(facts.Missing, want.Missing):
			t.Errorf("with %d more files, the kernel lacks %v, want %v", more, facts.Missing, want.Missing)
		case err != nil:
			failures++
			if !strings.Contains(err.Error(), "too many open files") {
				t.Errorf("with %d more files: %v", more, err)
			}
		}
	}
	if failures == 0 {
		t.Error("the limit had no effect")
	}
}
