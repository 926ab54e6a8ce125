// Package shell runs lines of shell script in a namespace.
package shell

import (
	"context"
	"fmt"
	"os/exec"
	"testing"
	"time"
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

// limit is how long a line may take.
const limit = 5 * time.Minute

// Try is Run that returns an error, with the output, if the line fails. A line that does not end within five minutes
// is killed.
func Try(in func(func() error) error, line string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	var out []byte
	err := in(func() (err error) {
		cmd := exec.CommandContext(ctx, "sh", "-c", line)
		cmd.WaitDelay = limit // another program of the line may have its output open
		out, err = cmd.CombinedOutput()
		return err
	})
	if ctx.Err() != nil {
		err = fmt.Errorf("it has not ended after %v", limit)
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s", line, err, out)
	}
	return string(out), nil
}
