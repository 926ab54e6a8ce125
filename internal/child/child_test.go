package child

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// errFirstThread is an error if a child's start changed the namespace of the
// process's first thread. It is set in TestMain, whose goroutine runs on that
// thread.
var errFirstThread error

func TestMain(m *testing.M) {
	Dispatch(Roles{"echo": echo, "mute": func() int { return 0 }})
	errFirstThread = startInOtherNetns()
	os.Exit(m.Run())
}

// startInOtherNetns starts children in another network namespace, and returns
// an error if this process's first thread has entered it.
func startInOtherNetns() error {
	before, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		return err
	}
	holder := exec.Command("cat") // keeps the other namespace open
	holder.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	in, err := holder.StdinPipe()
	if err == nil {
		err = holder.Start()
	}
	if err != nil {
		return err
	}
	ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", holder.Process.Pid))
	if err != nil {
		return err
	}
	defer ns.Close()
	for range 20 {
		p, err := Start(context.Background(), exec.Command("true"), Place{Netns: ns})
		if err == nil {
			err = p.Wait()
		}
		if err != nil {
			return err
		}
	}
	after, err := os.Readlink("/proc/self/ns/net")
	if err == nil && after != before {
		err = fmt.Errorf("the first thread moved from %s to %s", before, after)
	}
	return errors.Join(err, in.Close(), holder.Wait())
}

// TestFirstThreadStaysInItsNetns: the first thread of a process never ends. If
// it entered a child's namespace, it would keep that namespace alive until the
// process ends.
func TestFirstThreadStaysInItsNetns(t *testing.T) {
	if errFirstThread != nil {
		t.Error(errFirstThread)
	}
}
