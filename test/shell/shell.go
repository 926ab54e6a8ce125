// Package shell runs lines of a shell where a test wants them.
package shell

import (
	"os/exec"
	"testing"
)

// Run runs a line in a place, which is a function that runs another inside a
// namespace, and returns what it says; the test fails if the line does.
func Run(t testing.TB, in func(func() error) error, line string) string {
	t.Helper()
	var out []byte
	if err := in(func() (err error) {
		out, err = exec.Command("sh", "-c", line).CombinedOutput()
		return err
	}); err != nil {
		t.Fatalf("%s: %v\n%s", line, err, out)
	}
	return string(out)
}
