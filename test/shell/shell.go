// Package shell runs lines of shell script in a namespace.
package shell

import (
	"os/exec"
	"testing"
)

// Run runs a line with in, a function that runs another function inside a namespace, and returns
// the line's output. The test fails if the line fails.
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
