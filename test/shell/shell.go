// Package shell runs lines of shell script in a namespace.
package shell

import (
	"fmt"
	"os/exec"
	"testing"
)

// Run runs a line with in, a function that runs another function inside a namespace, and returns
// the line's output. The test fails if the line fails.
func Run(t testing.TB, in func(func() error) error, line string) string {
	t.Helper()
	out, err := Try(in, line)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Try is Run that returns an error, with the output, if the line fails.
func Try(in func(func() error) error, line string) (string, error) {
	var out []byte
	err := in(func() (err error) {
		out, err = exec.Command("sh", "-c", line).CombinedOutput()
		return err
	})
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s", line, err, out)
	}
	return string(out), nil
}
