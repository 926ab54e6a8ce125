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

// firstThread is what became of the process's first thread in TestMain, whose
// goroutine runs on it, and what it starts does, too.
var firstThread error

func TestMain(m *testing.M) {
	firstThread = startElsewhere()
	os.Exit(m.Run())
}

// startElsewhere starts a child in another network namespace, and reports an
// error if our first thread has gone there.
func startElsewhere() error {
	before, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		return err
	}
	holder := exec.Command("cat") // its namespace is the other one
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
		err = fmt.Errorf("the first thread has gone from %s to %s", before, after)
	}
	return errors.Join(err, in.Close(), holder.Wait())
}

// TestFirstThreadStays: the thread that the process began with never ends, so
// in a child's namespace it would keep that alive as long as we live.
func TestFirstThreadStays(t *testing.T) {
	if firstThread != nil {
		t.Error(firstThread)
	}
}
