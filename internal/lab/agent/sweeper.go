package agent

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"fairlead/internal/child"
	"fairlead/internal/lab/ledger"
)

// SweeperRole is the name of the role of the sweeper, whose function is SweeperMain.
const SweeperRole = "lab-sweeper"

// StartSweeper starts the process that removes what this process leaves behind if it
// is killed: cgroups. It ends when the returned file is closed, or after this process.
func StartSweeper() (io.Closer, error) {
	cmd := child.Self(SweeperRole)
	in, out, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start the sweeper: %w", err)
	}
	defer in.Close()
	cmd.Stdin = in
	if _, err := child.Start(context.Background(), cmd, child.Place{Outlives: true}); err != nil {
		out.Close()
		return nil, fmt.Errorf("start the sweeper: %w", err)
	}
	// Children do not inherit the pipe's other end, so the kernel closes it when this
	// process ends.
	return out, nil
}

// sweepLimit is how long a killed process may take to disappear: it ends with its
// children, and its parent has to wait for it.
const sweepLimit = time.Minute

// SweeperMain waits until the parent has ended, and removes the cgroups of all
// laboratories that have. It returns the exit status.
func SweeperMain() int {
	owner := os.Getppid()
	_, _ = io.Copy(io.Discard, os.Stdin) // any error is the end too
	for limit := time.Now().Add(sweepLimit); time.Now().Before(limit); time.Sleep(sweepInterval) {
		_, err := ledger.Sweep()
		if left, e := ledger.Left(owner); err == nil && e == nil && !left {
			return 0
		}
	}
	return 1
}

// sweepInterval is the time between two attempts.
const sweepInterval = 20 * time.Millisecond
