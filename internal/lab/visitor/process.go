package visitor

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime"

	"fairlead/internal/child"

	"golang.org/x/sys/unix"
)

// Role is the role of the visitors' process.
const Role = "site-visitors"

// Crowd is the running process of an order.
type Crowd struct{ worker *child.Worker }

// Begin starts the visits of an order, and returns when their schedule begins. When ctx ends, the process is killed.
func Begin(ctx context.Context, o Order, place child.Place) (*Crowd, error) {
	w, err := child.Order(ctx, Role, o, place)
	if err != nil {
		return nil, fmt.Errorf("visitors: %w", err)
	}
	return &Crowd{w}, nil
}

// Run makes the visits of an order and returns when all are over.
func Run(ctx context.Context, o Order, place child.Place) (Visits, error) {
	c, err := Begin(ctx, o, place)
	if err != nil {
		return Visits{}, err
	}
	defer c.Kill()
	return c.Wait()
}

// Wait waits until all visits of the schedule are over and returns them.
func (c *Crowd) Wait() (v Visits, err error) {
	if err = c.worker.Finish(&v); err != nil {
		return v, fmt.Errorf("wait for the visitors: %w", err)
	}
	return v, nil
}

// End starts no more visits, and returns those that have started after they are over.
func (c *Crowd) End() (Visits, error) {
	if _, err := io.WriteString(c.worker.In, child.Over); err != nil {
		return Visits{}, fmt.Errorf("end the visits: %w", err)
	}
	return c.Wait()
}

// Kill ends the process and discards its visits.
func (c *Crowd) Kill() { c.worker.Close() }

// Main runs the role of the visitors and returns the exit status.
func Main() int {
	err := first()
	if err == nil {
		err = visit(os.Stdin, os.Stdout)
	}
	return child.ExitCode("site", err)
}

// priority is the nice value of the visitors: they must start on time, whatever the
// site and other processes do.
const priority = -20

// first runs the program again with the priority, if it does not have it yet. The
// kernel keeps a priority per thread, so only a new program has it in all threads.
// Where the kernel groups processes by session (sched(7), autogroup), the session needs
// the priority too.
func first() error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	// The system call returns 20 less the nice value.
	if now, err := unix.Getpriority(unix.PRIO_PROCESS, 0); err != nil || now >= 20-priority {
		return err
	}
	if err := unix.Setpriority(unix.PRIO_PROCESS, 0, priority); err != nil {
		return nil // lateness shows whether it was needed
	}
	if _, err := unix.Setsid(); err == nil {
		_ = os.WriteFile("/proc/self/autogroup", fmt.Append(nil, priority), 0) // not every kernel has it
	}
	return unix.Exec("/proc/self/exe", os.Args, os.Environ())
}

func visit(input io.Reader, out io.Writer) error {
	return child.Work(input, out, func(o Order) (func(<-chan struct{}) Visits, error) {
		t, err := newTourist(o)
		return t.run, err
	})
}
