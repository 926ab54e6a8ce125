// Package e2e_test tests what the program guarantees to users: reports, exit codes, messages, and a
// host that is unchanged afterwards. Each test runs the built binary on the real kernel in a
// separate room. No test depends on how long anything takes.
package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"fairlead/test/compiled"
)

// binary is the program under test, built once.
var binary string

func TestMain(m *testing.M) {
	if os.Getenv(hideNftables) != "" {
		os.Exit(runWithoutNftables(os.Args[1:]))
	}
	os.Exit(testMain(m))
}

func testMain(m *testing.M) int {
	if os.Geteuid() != 0 {
		fmt.Fprintln(os.Stderr, "these tests create network namespaces and need root: run make test as root")
		return 1
	}
	dir, err := os.MkdirTemp("", "fairlead-e2e-")
	if err == nil {
		defer os.RemoveAll(dir)
		err = os.Chmod(dir, 0o755) // an ordinary user runs it, too
	}
	if err == nil {
		binary = filepath.Join(dir, "fairlead")
		err = compiled.Fairlead(binary)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}
