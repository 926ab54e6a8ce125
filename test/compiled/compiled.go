// Package compiled provides the command fairlead to tests that run it. It does not provide their other programs.
package compiled

import (
	"fmt"
	"os"
	"os/exec"
)

// Variable names a file with the command, which test/run has built for the tests of all packages.
const Variable = "FAIRLEAD_COMPILED"

// Fairlead writes the command, with the checks of package lock, to the file. It builds the command unless test/run has.
// Another process writes the file: if this one did, a child that it starts meanwhile could keep the file open, and the
// kernel would refuse to run it.
func Fairlead(file string) error {
	write := exec.Command("go", "build", "-buildvcs=false", "-ldflags=-s -w -X fairlead/internal/lock.checked=yes",
		"-o", file, "fairlead/cmd/fairlead")
	write.Env = append(os.Environ(), "CGO_ENABLED=0") // as make build does
	if from := os.Getenv(Variable); from != "" {
		write = exec.Command("cp", from, file)
	}
	if out, err := write.CombinedOutput(); err != nil {
		return fmt.Errorf("build fairlead: %w\n%s", err, out)
	}
	return nil
}
